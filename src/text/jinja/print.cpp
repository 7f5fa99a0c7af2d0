// Values as text: Python's str() and repr(), and json.dumps() as transformers calls it.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/characters.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace ridge::jinja {
namespace {

void check_size(const std::string& out) {
  if (out.size() > kMaxTextBytes) raise("text longer than {} bytes", kMaxTextBytes);
}

void write_repr(std::string& out, const Value& value, int n_namespaces);

void write_items(std::string& out, const std::vector<Value>& items, int n_namespaces) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    write_repr(out, items[i], n_namespaces);
  }
}

void write_dict(std::string& out, const std::vector<std::pair<Value, Value>>& items, int n_namespaces) {
  out += '{';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    write_repr(out, items[i].first, n_namespaces);
    out += ": ";
    write_repr(out, items[i].second, n_namespaces);
  }
  out += '}';
}

void write_sequence(std::string& out, const Sequence& s, int n_namespaces) {
  switch (s.flavor) {
    case Flavor::kGenerator: out += "<generator object>"; return;
    case Flavor::kRange: {
      const int64_t n = static_cast<int64_t>(s.items.size());
      const int64_t first = n ? s.items.front().integer() : 0, step = n > 1 ? s.items[1].integer() - first : 1;
      out += step == 1 ? fmt::format("range({}, {})", first, first + n) : fmt::format("range({}, {}, {})", first, first + n * step, step);
      return;
    }
    case Flavor::kTuple: case Flavor::kGroup:
      out += '(';
      write_items(out, s.items, n_namespaces);
      out += s.items.size() == 1 ? ",)" : ")";
      return;
    case Flavor::kKeys: out += "dict_keys(["; break;
    case Flavor::kValues: out += "dict_values(["; break;
    case Flavor::kItems: out += "dict_items(["; break;
    case Flavor::kList: out += '['; break;
  }
  write_items(out, s.items, n_namespaces);
  out += s.flavor == Flavor::kList ? "]" : "])";
}

void write_repr(std::string& out, const Value& value, int n_namespaces) {
  check_size(out);
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_text()) {
    out += value.is_markup() ? "Markup(" + repr_of_text(value.text()) + ")" : repr_of_text(value.text());
  } else if (value.is_sequence()) {
    write_sequence(out, value.sequence(), n_namespaces);
  } else if (value.is_dict()) {
    write_dict(out, value.dict().items, n_namespaces);
  } else if (const auto ns = value.object_as<Namespace>()) {
    // A namespace may hold itself, and each level multiplies: Python would end in a RecursionError too.
    if (n_namespaces >= 8) raise("maximum recursion depth exceeded while printing a namespace");
    std::vector<std::pair<Value, Value>> members(ns->members.begin(), ns->members.end());
    out += "<Namespace ";
    write_dict(out, members, n_namespaces + 1);
    out += '>';
  } else {
    out += to_text(value);
  }
}

void write_json_text(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  while (!text.empty()) {
    const auto d = utf8::decode_one(text);
    switch (d.c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (d.c >= 0x20 && (d.c < 0x7F || !ensure_ascii)) {
          out += text.substr(0, d.n_bytes);
        } else if (d.c < 0x10000) {
          out += fmt::format("\\u{:04x}", static_cast<uint32_t>(d.c));
        } else {
          const uint32_t rest = d.c - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
        }
    }
    text.remove_prefix(d.n_bytes);
  }
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}
  std::string out;

  void write(const Value& value, int level) {
    check_size(out);
    if (value.is_none()) {
      out += "null";
    } else if (value.is_bool()) {
      out += value.truth() ? "true" : "false";
    } else if (value.is_number()) {
      out += number(value);
    } else if (value.is_text()) {
      write_json_text(out, value.text(), style_.ensure_ascii);
    } else if (value.is_dict()) {
      write_object(value.dict(), level);
    } else if (value.is_sequence() && value.sequence().flavor <= Flavor::kGroup) {
      const auto& items = value.sequence().items;
      out += '[';
      for (size_t i = 0; i < items.size(); ++i) {
        separate(i > 0, level + 1);
        write(items[i], level + 1);
      }
      if (!items.empty()) new_line(level);
      out += ']';
    } else {
      raise("Object of type {} is not JSON serializable", value.type_name());
    }
  }

 private:
  const JsonStyle& style_;

  static std::string number(const Value& value) {
    if (value.is_float() && std::isnan(value.number())) return "NaN";
    if (value.is_float() && std::isinf(value.number())) return value.number() > 0 ? "Infinity" : "-Infinity";
    return to_text(value);
  }

  void new_line(int level) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < level; ++i) out += *style_.indent;
    check_size(out);
  }

  void separate(bool comma, int level) {
    if (comma) out += style_.item_separator;
    new_line(level);
  }

  void write_object(const Dict& dict, int level) {
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& item : dict.items) order.push_back(&item);
    if (style_.sort_keys) std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return less(a->first, b->first); });
    out += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      const Value& key = order[i]->first;
      separate(i > 0, level + 1);
      if (key.is_text()) {
        write_json_text(out, key.text(), style_.ensure_ascii);
      } else if (key.is_none() || key.is_bool()) {
        out += key.is_none() ? "\"null\"" : key.truth() ? "\"true\"" : "\"false\"";
      } else if (key.is_number()) {
        out += '"' + number(key) + '"';
      } else {
        raise("keys must be str, int, float, bool or None, not {}", key.type_name());
      }
      out += style_.key_separator;
      write(order[i]->second, level + 1);
    }
    if (!order.empty()) new_line(level);
    out += '}';
  }
};

}  // namespace

std::string repr_of_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view all(buffer, end - buffer);
  const size_t e = all.find('e');
  const int exponent = std::stoi(std::string(all.substr(e + 1)));
  std::string sign, digits;
  for (const char c : all.substr(0, e)) {
    if (c == '-') sign = "-";
    else if (c != '.') digits += c;
  }
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits.substr(0, 1), n > 1 ? "." : "", digits.substr(1), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  if (n <= exponent + 1) return sign + digits + std::string(exponent + 1 - n, '0') + ".0";
  return sign + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

std::string repr_of_text(std::string_view text, bool ascii) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const auto d = utf8::decode_one(text);
    const uint32_t c = d.c;
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c) && !(ascii && c > 0x7E)) {
      out += text.substr(0, d.n_bytes);
    } else {
      out += c < 0x100 ? fmt::format("\\x{:02x}", c) : c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
    }
    text.remove_prefix(d.n_bytes);
  }
  out += quote;
  return out;
}

std::string to_repr(const Value& value) {
  std::string out;
  write_repr(out, value, 0);
  return out;
}

std::string to_text(const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.truth() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.integer());
  if (value.is_float()) return repr_of_float(value.number());
  if (value.is_object() && !value.object_as<Namespace>()) return value.object()->repr();
  return to_repr(value);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace ridge::jinja
