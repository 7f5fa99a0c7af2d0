// Python's three ways to format: "%5.2f" % x, "{:>8}".format(x) and the specification they share: [[fill]align][sign][#][0][width][,][.precision][type].
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "base/utf8.h"

namespace ridge::jinja {
namespace {

constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxPrecision = 400;

struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false, zero = false;
  int width = 0, precision = -1;
};

int parse_number(std::string_view& rest, int most) {
  int64_t n = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    n = std::min<int64_t>(n * 10 + (rest[0] - '0'), most + 1);
    rest.remove_prefix(1);
  }
  if (n > most) raise("a width or precision in a format is larger than {}", most);
  return static_cast<int>(n);
}

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

Spec parse_spec(std::string_view rest) {
  Spec spec;
  const auto take = [&](std::string_view any) -> char {
    if (rest.empty() || any.find(rest[0]) == std::string_view::npos) return 0;
    const char c = rest[0];
    rest.remove_prefix(1);
    return c;
  };
  if (!rest.empty()) {
    const int n = utf8::decode_one(rest).n_bytes;
    if (static_cast<int>(rest.size()) > n && is_align(rest[n])) {
      spec.fill = std::string(rest.substr(0, n));
      rest.remove_prefix(n);
    }
  }
  spec.align = take("<>=^");
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#");
  if (take("0")) {
    spec.zero = true;
    if (!spec.align) spec.fill = "0", spec.align = '=';
  }
  spec.width = parse_number(rest, kMaxWidth);
  spec.grouping = take(",_");
  if (take(".")) {
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') raise("Format specifier missing precision");
    spec.precision = parse_number(rest, kMaxWidth);
  }
  if (!rest.empty()) {
    spec.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) raise("Invalid format specifier");
  return spec;
}

std::string repeat_fill(const std::string& fill, int64_t n) {
  std::string out;
  for (int64_t i = 0; i < n; ++i) out += fill;
  return out;
}

// `prefix` is the sign and 0x: with '=' the filling goes between it and the body.
std::string pad(const Spec& spec, const std::string& prefix, const std::string& body, char otherwise) {
  const int64_t room = spec.width - n_characters(prefix) - n_characters(body);
  if (room <= 0) return prefix + body;
  const char align = spec.align ? spec.align : otherwise;
  if (align == '<') return prefix + body + repeat_fill(spec.fill, room);
  if (align == '^') return repeat_fill(spec.fill, room / 2) + prefix + body + repeat_fill(spec.fill, room - room / 2);
  if (align == '=') return prefix + repeat_fill(spec.fill, room) + body;
  return repeat_fill(spec.fill, room) + prefix + body;
}

std::string group(const std::string& digits, char separator, int every) {
  const size_t n = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < n; ++i) {
    if (i > 0 && (n - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(n);
}

std::string sign_of(bool negative, char sign) { return negative ? "-" : sign == '-' ? "" : std::string(1, sign); }

// A float's digits without its sign.
std::string float_digits(double value, const Spec& spec) {
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (!std::isfinite(value)) return std::string(std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf")) + (spec.type == '%' ? "%" : "");
  value = std::fabs(value);
  if (!spec.type && spec.precision < 0) return repr_of_float(value);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (precision > kMaxPrecision) raise("precision too big");
  char type = spec.type ? spec.type : 'g';
  if (type == 'n') type = 'g';
  if (type == '%') value *= 100, type = 'f';
  const std::string format = std::string("%") + (spec.alternate ? "#" : "") + ".*" + type;
  char buffer[1024];
  std::snprintf(buffer, sizeof buffer, format.c_str(), precision, value);
  std::string out = buffer;
  if (!spec.type && out.find_first_of(".e") == std::string::npos) out += ".0";
  return out + (spec.type == '%' ? "%" : "");
}

std::string format_float(double value, const Spec& spec) {
  std::string digits = float_digits(value, spec);
  if (spec.grouping) digits = group(digits, spec.grouping, 3);
  return pad(spec, sign_of(std::signbit(value) && !std::isnan(value), spec.sign), digits, '>');
}

std::string integer_digits(int64_t value, char type) {
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  switch (type) {
    case 'b': return fmt::format("{:b}", magnitude);
    case 'o': return fmt::format("{:o}", magnitude);
    case 'x': return fmt::format("{:x}", magnitude);
    case 'X': return fmt::format("{:X}", magnitude);
    default: return fmt::format("{}", magnitude);
  }
}

std::string format_integer(int64_t value, const Spec& spec) {
  if (spec.precision >= 0) raise("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    std::string c;
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) raise("%c arg not in range(0x110000)");
    utf8::append(c, static_cast<char32_t>(value));
    return pad(spec, "", c, '<');
  }
  std::string digits = integer_digits(value, spec.type);
  if (spec.grouping) digits = group(digits, spec.grouping, spec.type && std::string_view("boxX").find(spec.type) != std::string_view::npos ? 4 : 3);
  std::string prefix = sign_of(value < 0, spec.sign);
  if (spec.alternate && spec.type && std::string_view("boxX").find(spec.type) != std::string_view::npos) prefix += std::string("0") + spec.type;
  return pad(spec, prefix, digits, '>');
}

std::string cut(std::string_view text, int precision) { return std::string(precision < 0 ? text : text.substr(0, byte_offset(text, precision))); }

// One conversion of the % operator, after its key, flags, width and precision were read.
std::string percent_one(const Value& value, char conversion, bool left, bool zero, Spec spec) {
  if (value.is_undefined() && conversion != 's' && conversion != 'r' && conversion != 'a') throw Raised{value.undefined_message()};
  spec.align = left ? '<' : zero ? '=' : '>';
  spec.fill = zero && !left ? "0" : " ";
  switch (conversion) {
    case 's': return pad({.fill = " ", .align = left ? '<' : '>', .width = spec.width}, "", cut(to_text(value), spec.precision), '>');
    case 'r': case 'a': return pad({.fill = " ", .align = left ? '<' : '>', .width = spec.width}, "", cut(to_repr(value), spec.precision), '>');
    case 'c': {
      if (value.is_text() && n_characters(value.text()) != 1) raise("%c requires int or char");
      spec.type = 'c';
      spec.precision = -1;
      return value.is_text() ? pad(spec, "", value.text(), '>') : format_integer(as_integer(value), spec);
    }
    case 'd': case 'i': case 'u': case 'x': case 'X': case 'o': {
      const bool decimal = conversion == 'd' || conversion == 'i' || conversion == 'u';
      if (!value.is_number() || (!decimal && !value.is_integral())) {
        raise("%{} format: {} is required, not {}", conversion, decimal ? "a real number" : "an integer", value.type_name());
      }
      if (value.is_float() && !(std::fabs(value.number()) < 9.2e18)) raise("cannot convert float to integer");
      const int64_t n = value.is_float() ? static_cast<int64_t>(value.number()) : value.integer();
      std::string digits = integer_digits(n, decimal ? 'd' : conversion);
      if (spec.precision > kMaxPrecision) raise("precision too big");
      if (static_cast<int>(digits.size()) < spec.precision) digits.insert(0, spec.precision - digits.size(), '0');
      const std::string base = spec.alternate && !decimal ? std::string("0") + conversion : "";
      return pad(spec, sign_of(n < 0, spec.sign) + base, digits, '>');
    }
    case 'e': case 'E': case 'f': case 'F': case 'g': case 'G':
      if (!value.is_number()) raise("must be real number, not {}", value.type_name());
      spec.type = conversion;
      return format_float(value.number(), spec);
    default: raise("unsupported format character '{}'", conversion);
  }
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Args& args, bool escape) : runtime_(runtime), args_(args), escape_(escape) {}

  std::string run(std::string_view format, int level) {
    if (level < 0) raise("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < format.size();) {
      const char c = format[i];
      if (c != '{' && c != '}') {
        const size_t next = std::min(format.find_first_of("{}", i), format.size());
        out += format.substr(i, next - i);
        i = next;
      } else if (i + 1 < format.size() && format[i + 1] == c) {
        out += c;
        i += 2;
      } else if (c == '}') {
        raise("Single '}}' encountered in format string");
      } else {
        int open = 1;
        size_t end = i + 1;
        while (end < format.size() && open > 0) {
          open += format[end] == '{' ? 1 : format[end] == '}' ? -1 : 0;
          ++end;
        }
        if (open > 0) raise("expected '}}' before end of string");
        out += field(format.substr(i + 1, end - i - 2), level);
        i = end;
      }
      runtime_.check_text(out.size());
    }
    return out;
  }

 private:
  Runtime& runtime_;
  const Args& args_;
  bool escape_;
  int next_ = 0;
  bool automatic_ = false, manual_ = false;

  std::string field(std::string_view text, int level) {
    size_t split = 0;
    int brackets = 0;
    while (split < text.size() && (brackets > 0 || (text[split] != '!' && text[split] != ':'))) {
      brackets += text[split] == '[' ? 1 : text[split] == ']' ? -1 : 0;
      ++split;
    }
    Value value = lookup(text.substr(0, split));
    std::string_view rest = text.substr(split);
    if (rest.starts_with("!")) {
      const char conversion = rest.size() > 1 ? rest[1] : 0;
      if (conversion != 'r' && conversion != 's' && conversion != 'a') raise("Unknown conversion specifier in format string");
      value = conversion == 's' ? Value(to_text(value)) : conversion == 'a' && value.is_text() ? Value(repr_of_text(value.text(), true)) : Value(to_repr(value));
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') raise("expected ':' after conversion specifier");
    }
    const std::string spec = rest.starts_with(":") ? run(rest.substr(1), level - 1) : "";
    if (escape_) return value.is_markup() ? value.text() : escape_html(format_value(value, spec));
    return format_value(value, spec);
  }

  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(std::string(name.substr(0, end)));
    std::string_view rest = name.substr(end);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        const size_t stop = std::min(rest.find_first_of(".[", 1), rest.size());
        value = runtime_.attribute(value, rest.substr(1, stop - 1));
        rest.remove_prefix(stop);
      } else if (rest[0] == '[') {
        const size_t close = rest.find(']');
        if (close == std::string_view::npos) raise("Missing ']' in format string");
        const std::string key(rest.substr(1, close - 1));
        const bool number = !key.empty() && key.size() < 10 && std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
        value = runtime_.item(value, number ? Value(std::stoi(key)) : Value(key));
        rest.remove_prefix(close + 1);
      } else {
        raise("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value first(const std::string& name) {
    const bool digits = std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) {
      for (const auto& [key, value] : args_.keyword) {
        if (key == name) return value;
      }
      raise("KeyError: {}", repr_of_text(name));
    }
    (name.empty() ? automatic_ : manual_) = true;
    if (automatic_ && manual_) raise("cannot switch from manual field specification to automatic field numbering");
    const int64_t i = name.empty() ? next_++ : name.size() < 10 ? std::stoll(name) : kMaxRange;
    if (i >= static_cast<int64_t>(args_.positional.size())) raise("Replacement index {} out of range for positional args tuple", i);
    return args_.positional[i];
  }
};

}  // namespace

std::string format_value(const Value& value, std::string_view text) {
  if (text.empty()) return to_text(value);
  const Spec spec = parse_spec(text);
  const bool is_float_type = spec.type && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is_integral() && !(value.is_bool() && !spec.type)) {
    if (is_float_type) return format_float(value.number(), spec);
    if (spec.type && std::string_view("bcdoxXn").find(spec.type) == std::string_view::npos) raise("Unknown format code '{}' for object of type 'int'", spec.type);
    return format_integer(value.integer(), spec);
  }
  if (value.is_float()) {
    if (spec.type && !is_float_type && spec.type != 'n') raise("Unknown format code '{}' for object of type 'float'", spec.type);
    return format_float(value.number(), spec);
  }
  if (!value.is_text() && !value.is_bool()) raise("unsupported format string passed to {}.__format__", value.type_name());
  if (spec.type && spec.type != 's') raise("Unknown format code '{}' for object of type 'str'", spec.type);
  if (spec.align == '=' && !spec.zero) raise("'=' alignment not allowed in string format specifier");
  Spec plain = spec;
  if (spec.align == '=') plain.align = '<';
  return pad(plain, "", cut(to_text(value), spec.precision), '<');
}

std::string format_braces(Runtime& runtime, std::string_view format, const Args& args, bool escape) {
  return BraceFormatter(runtime, args, escape).run(format, 2);
}

Value format_percent(Runtime& runtime, const Value& format, const Value& values) {
  const bool is_tuple = values.is_sequence() && values.sequence().is_tuple();
  size_t n_used = 0;
  bool used_mapping = false;
  const auto next = [&]() -> const Value& {
    if (is_tuple) {
      if (n_used >= values.sequence().items.size()) raise("not enough arguments for format string");
      return values.sequence().items[n_used++];
    }
    if (n_used++ > 0) raise("not enough arguments for format string");
    return values;
  };
  std::string out;
  std::string_view rest = format.text();
  while (!rest.empty()) {
    const size_t percent = std::min(rest.find('%'), rest.size());
    out += rest.substr(0, percent);
    rest.remove_prefix(percent);
    if (rest.empty()) break;
    rest.remove_prefix(1);
    Value keyed;
    bool has_key = false;
    if (rest.starts_with("(")) {
      const size_t close = rest.find(')');
      if (close == std::string_view::npos) raise("incomplete format key");
      if (!values.is_dict()) raise("format requires a mapping");
      const Value* found = values.dict().find(rest.substr(1, close - 1));
      if (!found) raise("KeyError: {}", repr_of_text(rest.substr(1, close - 1)));
      keyed = *found;
      has_key = used_mapping = true;
      rest.remove_prefix(close + 1);
    }
    Spec spec;
    bool left = false, zero = false;
    while (!rest.empty() && std::string_view("#0- +").find(rest[0]) != std::string_view::npos) {
      left |= rest[0] == '-';
      zero |= rest[0] == '0';
      spec.alternate |= rest[0] == '#';
      if (rest[0] == '+' || (rest[0] == ' ' && spec.sign != '+')) spec.sign = rest[0];
      rest.remove_prefix(1);
    }
    const auto number_or_star = [&]() {
      if (!rest.starts_with("*")) return parse_number(rest, kMaxWidth);
      rest.remove_prefix(1);
      const int64_t n = as_integer(next());
      if (std::abs(n) > kMaxWidth) raise("a width or precision in a format is larger than {}", kMaxWidth);
      return static_cast<int>(n);
    };
    spec.width = number_or_star();
    if (spec.width < 0) left = true, spec.width = -spec.width;
    if (rest.starts_with(".")) {
      rest.remove_prefix(1);
      spec.precision = std::max(number_or_star(), 0);
    }
    while (!rest.empty() && std::string_view("hlL").find(rest[0]) != std::string_view::npos) rest.remove_prefix(1);
    if (rest.empty()) raise("incomplete format");
    const char conversion = rest[0];
    rest.remove_prefix(1);
    if (conversion == '%') {
      out += '%';
      continue;
    }
    const Value& value = has_key ? keyed : next();
    const std::string one = percent_one(value, conversion, left, zero, spec);
    out += format.is_markup() && !value.is_markup() ? escape_html(one) : one;
    runtime.check_text(out.size());
  }
  if (is_tuple ? n_used < values.sequence().items.size() : n_used == 0 && !used_mapping && !values.is_dict() && !values.is_sequence() && !values.is_undefined()) {
    raise("not all arguments converted during string formatting");
  }
  return runtime.text(std::move(out), format.is_markup());
}

}  // namespace ridge::jinja
