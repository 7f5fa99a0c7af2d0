// The methods of Python's str.
#include <algorithm>
#include <unordered_map>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"

namespace ridge::jinja {
namespace {

// A str result keeps being Markup when self is.
Value same(Runtime& runtime, const Value& self, std::string text) { return runtime.text(std::move(text), self.is_markup()); }

Value pieces(Runtime& runtime, const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(same(runtime, self, std::string(part)));
  return make_list(std::move(items));
}

template <Side side>
Value strip_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("strip", args, {"chars"});
  if (b.given(0) && !b[0].is_text()) raise("strip arg must be None or str");
  runtime.spend(static_cast<int64_t>(self.text().size() / 64));
  return same(runtime, self, std::string(strip(self.text(), side, b.given(0) ? std::optional(b[0].text()) : std::nullopt)));
}

std::vector<std::string_view> split_on_space(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  const auto char_space = [&](size_t i) { return is_space(utf8::decode_one(text.substr(i)).c); };
  if (!from_right) {
    text = strip(text, Side::kLeft);
    while (!text.empty()) {
      if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
        parts.push_back(text);
        break;
      }
      size_t end = 0;
      while (end < text.size() && !char_space(end)) end += utf8::decode_one(text.substr(end)).n_bytes;
      parts.push_back(text.substr(0, end));
      text = strip(text.substr(end), Side::kLeft);
    }
    return parts;
  }
  text = strip(text, Side::kRight);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t i = begin - 1;
      while (i > 0 && (text[i] & 0xC0) == 0x80) --i;
      if (char_space(i)) break;
      begin = i;
    }
    parts.push_back(text.substr(begin));
    text = strip(text.substr(0, begin), Side::kRight);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_right>
Value split_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("split", args, {"sep", "maxsplit"});
  const int64_t most = b.integer(1, -1);
  std::string_view text = self.text();
  runtime.spend(static_cast<int64_t>(text.size() / 16));
  if (!b.given(0)) return pieces(runtime, self, split_on_space(text, most, from_right));
  const std::string separator = b.text(0, "");
  if (separator.empty()) raise("empty separator");
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return pieces(runtime, self, parts);
}

template <bool from_right>
Value partition_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("partition", args, {"sep"}, 1);
  const std::string separator = b.text(0, "");
  if (separator.empty()) raise("empty separator");
  const std::string& text = self.text();
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) return from_right ? make_tuple({"", "", self}) : make_tuple({self, "", ""});
  return make_tuple({same(runtime, self, text.substr(0, at)), separator, same(runtime, self, text.substr(at + separator.size()))});
}

// The part of self that [start, end) means, and the index of its first character.
struct Window {
  std::string_view text;
  int64_t first;
  bool empty_past_end;
};
Window window_of(const Value& self, const Bound& b) {
  const std::string_view text = self.text();
  if (!b.given(1) && !b.given(2)) return {text, 0, false};
  const int64_t n = n_characters(text);
  const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? std::max(at, -n) + n : at, 0, n); };
  const int64_t start = b.given(1) ? as_integer(b[1]) : 0;
  const int64_t from = place(start), to = place(b.given(2) ? as_integer(b[2]) : n);
  if (from > to || start > n) return {"", from, true};
  const size_t begin = byte_offset(text, from);
  return {text.substr(begin, byte_offset(text, to) - begin), from, false};
}

template <bool prefix>
Value affix_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b(prefix ? "startswith" : "endswith", args, {"prefix", "start", "end"}, 1);
  const Window w = window_of(self, b);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_text()) raise("{} first arg must be str or a tuple of str, not {}", prefix ? "startswith" : "endswith", affix.type_name());
    return !w.empty_past_end && (prefix ? w.text.starts_with(affix.text()) : w.text.ends_with(affix.text()));
  };
  runtime.spend(1);
  if (b[0].is_sequence() && b[0].sequence().is_tuple()) return std::any_of(b[0].sequence().items.begin(), b[0].sequence().items.end(), matches);
  return matches(b[0]);
}

template <bool from_right, bool must>
Value find_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("find", args, {"sub", "start", "end"}, 1);
  const std::string needle = b.text(0, "");
  runtime.spend(static_cast<int64_t>(self.text().size() / 32));
  const Window w = window_of(self, b);
  const size_t at = w.empty_past_end ? std::string_view::npos : from_right ? w.text.rfind(needle) : w.text.find(needle);
  if (at != std::string_view::npos) return w.first + n_characters(w.text.substr(0, at));
  if (must) raise("substring not found");
  return -1;
}

Value count_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("count", args, {"sub", "start", "end"}, 1);
  const std::string needle = b.text(0, "");
  runtime.spend(static_cast<int64_t>(self.text().size() / 32));
  const Window w = window_of(self, b);
  if (w.empty_past_end) return 0;
  if (needle.empty()) return n_characters(w.text) + 1;
  int64_t n = 0;
  for (size_t at = w.text.find(needle); at != std::string_view::npos; at = w.text.find(needle, at + needle.size())) ++n;
  return n;
}

Value replace_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("replace", args, {"old", "new", "count"}, 2);
  const std::string old = b.text(0, ""), with = self.is_markup() ? soft_escape(b[1]) : b.text(1, "");
  int64_t left = b.integer(2, -1);
  const std::string& text = self.text();
  std::string out;
  size_t at = 0;
  while (left != 0) {
    size_t found;
    if (old.empty()) {                      // between all characters, and at both ends
      found = at;
    } else {
      found = text.find(old, at);
      if (found == std::string::npos) break;
    }
    out.append(text, at, found - at);
    out += with;
    at = found + old.size();
    if (old.empty()) {
      if (at >= text.size()) break;
      const int n = utf8::decode_one(std::string_view(text).substr(at)).n_bytes;
      out.append(text, at, n);
      at += n;
    }
    --left;
    runtime.check_text(out.size());
  }
  if (at < text.size()) out.append(text, at);
  return same(runtime, self, std::move(out));
}

Value join_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("join", args, {"iterable"}, 1);
  std::string out;
  int64_t i = 0;
  if (b[0].is_none()) raise("can only join an iterable");
  for (const Value& item : runtime.iterate(b[0])) {
    if (!item.is_text()) raise("sequence item {}: expected str instance, {} found", i, item.type_name());
    if (i++ > 0) out += self.text();
    out += self.is_markup() ? soft_escape(item) : item.text();
    runtime.check_text(out.size());
  }
  return same(runtime, self, std::move(out));
}

template <std::string (*f)(std::string_view)>
Value map_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("method", args, {});
  return same(runtime, self, f(self.text()));
}

template <bool (*f)(char32_t)>
Value all_method(Runtime&, const Value& self, Args&) {
  const std::u32string text = utf8::decode(self.text());
  return !text.empty() && std::all_of(text.begin(), text.end(), f);
}

template <bool wanted_upper>
Value cased_method(Runtime&, const Value& self, Args&) {
  bool any = false;
  for (const char32_t c : utf8::decode(self.text())) {
    if (wanted_upper ? is_lower(c) : is_upper(c)) return false;
    any |= wanted_upper ? is_upper(c) : is_lower(c);
  }
  return any;
}

Value is_title(Runtime&, const Value& self, Args&) {
  bool any = false, inside = false;
  for (const char32_t c : utf8::decode(self.text())) {
    if ((is_upper(c) && inside) || (is_lower(c) && !inside)) return false;
    inside = is_upper(c) || is_lower(c);
    any |= inside;
  }
  return any;
}

Value is_identifier(Runtime&, const Value& self, Args&) {
  const std::u32string text = utf8::decode(self.text());
  return !text.empty() && (text[0] == '_' || is_alpha(text[0])) && std::all_of(text.begin(), text.end(), is_word);
}

enum class Pad { kLeft, kRight, kCenter, kZero };
template <Pad where>
Value pad_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("just", args, {"width", "fillchar"}, 1);
  const std::string fill = where == Pad::kZero ? "0" : b.text(1, " ");
  if (n_characters(fill) != 1) raise("The fill character must be exactly one character long");
  const int64_t width = as_integer(b[0]), n = n_characters(self.text()), room = width - n;
  if (room <= 0) return self;
  runtime.check_text(static_cast<size_t>(std::min<int64_t>(room, kMaxTextBytes + 1)) * fill.size());
  const int64_t left = where == Pad::kLeft ? 0 : where == Pad::kCenter ? room / 2 + (room & width & 1) : room;
  std::string before, after;
  for (int64_t i = 0; i < left; ++i) before += fill;
  for (int64_t i = left; i < room; ++i) after += fill;
  const std::string& text = self.text();
  if (where == Pad::kZero && !text.empty() && (text[0] == '-' || text[0] == '+')) return same(runtime, self, text[0] + before + text.substr(1));
  return same(runtime, self, before + text + after);
}

Value format_method(Runtime& runtime, const Value& self, Args& args) {
  return same(runtime, self, format_braces(runtime, self.text(), args, self.is_markup()));
}

Value format_map(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("format_map", args, {"mapping"}, 1);
  if (!b[0].is_dict()) raise("format_map() needs a mapping, not {}", b[0].type_name());
  Args keyed;
  for (const auto& [key, value] : b[0].dict().items) keyed.keyword.emplace_back(to_text(key), value);
  return same(runtime, self, format_braces(runtime, self.text(), keyed, self.is_markup()));
}

Value splitlines_method(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("splitlines", args, {"keepends"});
  runtime.spend(static_cast<int64_t>(self.text().size() / 16));
  return pieces(runtime, self, split_lines(self.text(), b.truth(0)));
}

template <bool prefix>
Value remove_affix(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("removeprefix", args, {"affix"}, 1);
  const std::string affix = b.text(0, "");
  const std::string& text = self.text();
  if (prefix ? !text.starts_with(affix) : !text.ends_with(affix)) return self;
  return same(runtime, self, prefix ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size()));
}

Value expandtabs(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("expandtabs", args, {"tabsize"});
  const int64_t size = std::min<int64_t>(b.integer(0, 8), 1024);
  std::string out;
  int64_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      const int64_t n = size > 0 ? size - column % size : 0;
      out.append(n, ' ');
      column += n;
    } else {
      out += c;
      column = c == '\n' || c == '\r' ? 0 : column + ((c & 0xC0) != 0x80);
    }
    runtime.check_text(out.size());
  }
  return same(runtime, self, std::move(out));
}

bool is_ascii_char(char32_t c) { return c < 0x80; }
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

Value is_ascii_method(Runtime& r, const Value& self, Args& a) { return self.text().empty() ? Value(true) : all_method<is_ascii_char>(r, self, a); }
Value is_printable_method(Runtime& r, const Value& self, Args& a) { return self.text().empty() ? Value(true) : all_method<is_printable>(r, self, a); }

}  // namespace

Method find_text_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"strip", strip_method<Side::kBoth>}, {"lstrip", strip_method<Side::kLeft>}, {"rstrip", strip_method<Side::kRight>},
      {"split", split_method<false>}, {"rsplit", split_method<true>}, {"splitlines", splitlines_method},
      {"partition", partition_method<false>}, {"rpartition", partition_method<true>},
      {"startswith", affix_method<true>}, {"endswith", affix_method<false>},
      {"find", find_method<false, false>}, {"rfind", find_method<true, false>}, {"index", find_method<false, true>}, {"rindex", find_method<true, true>},
      {"count", count_method}, {"replace", replace_method}, {"join", join_method},
      {"upper", map_method<upper>}, {"lower", map_method<lower>}, {"casefold", map_method<lower>}, {"title", map_method<title>},
      {"capitalize", map_method<capitalize>}, {"swapcase", map_method<swap_case>},
      {"isalpha", all_method<is_alpha>}, {"isdigit", all_method<is_digit>}, {"isdecimal", all_method<is_decimal>}, {"isnumeric", all_method<is_numeric>},
      {"isalnum", all_method<is_alnum>}, {"isspace", all_method<is_space>}, {"isascii", is_ascii_method}, {"isprintable", is_printable_method},
      {"isupper", cased_method<true>}, {"islower", cased_method<false>}, {"istitle", is_title}, {"isidentifier", is_identifier},
      {"ljust", pad_method<Pad::kLeft>}, {"rjust", pad_method<Pad::kRight>}, {"center", pad_method<Pad::kCenter>}, {"zfill", pad_method<Pad::kZero>},
      {"format", format_method}, {"format_map", format_map}, {"removeprefix", remove_affix<true>}, {"removesuffix", remove_affix<false>},
      {"expandtabs", expandtabs}};
  const auto it = kMethods.find(name);
  return it == kMethods.end() ? nullptr : it->second;
}

}  // namespace ridge::jinja
