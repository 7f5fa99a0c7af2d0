// Classes come from Unicode's general categories by utf8proc; the sets that Python spells out (white space, line ends) are spelled out here.
#include "text/jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/value.h"

namespace ridge::jinja {
namespace {

int category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

void append_upper(std::string& out, char32_t c, bool title) {
  if (c == 0xDF) {
    out += title ? "Ss" : "SS";             // the one full mapping that ordinary text has
    return;
  }
  const auto k = static_cast<utf8proc_int32_t>(c);
  utf8::append(out, static_cast<char32_t>(title ? utf8proc_totitle(k) : utf8proc_toupper(k)));
}

void append_lower(std::string& out, char32_t c) { utf8::append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)))); }

template <class F>
std::string map_characters(std::string_view text, F&& f) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto d = utf8::decode_one(text);
    f(out, d.c);
    text.remove_prefix(d.n_bytes);
  }
  return out;
}

}  // namespace

int64_t n_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

size_t byte_offset(std::string_view text, int64_t character) {
  size_t i = 0;
  while (i < text.size()) {
    if ((text[i] & 0xC0) != 0x80 && character-- == 0) return i;
    ++i;
  }
  return i;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) { return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029; }

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_CS: case UTF8PROC_CATEGORY_CO: case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP: case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_alpha(char32_t c) {
  const int k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468);
}
bool is_numeric(char32_t c) {
  const int k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }

std::string upper(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c) { append_upper(out, c, false); });
}
std::string lower(std::string_view text) { return map_characters(text, append_lower); }

std::string capitalize(std::string_view text) {
  return map_characters(text, [first = true](std::string& out, char32_t c) mutable {
    first ? append_upper(out, c, true) : append_lower(out, c);
    first = false;
  });
}

std::string title(std::string_view text) {
  return map_characters(text, [inside = false](std::string& out, char32_t c) mutable {
    inside ? append_lower(out, c) : append_upper(out, c, true);
    inside = is_lower(c) || is_upper(c) || category(c) == UTF8PROC_CATEGORY_LT;
  });
}

std::string swap_case(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c) { is_upper(c) ? append_lower(out, c) : append_upper(out, c, false); });
}

std::string_view strip(std::string_view text, Side side, const std::optional<std::string>& characters) {
  const std::u32string set = characters ? utf8::decode(*characters) : std::u32string();
  const auto goes = [&](char32_t c) { return characters ? set.find(c) != std::u32string::npos : is_space(c); };
  while (side != Side::kRight && !text.empty()) {
    const auto d = utf8::decode_one(text);
    if (!goes(d.c)) break;
    text.remove_prefix(d.n_bytes);
  }
  while (side != Side::kLeft && !text.empty()) {
    size_t i = text.size() - 1;
    while (i > 0 && (text[i] & 0xC0) == 0x80) --i;
    if (!goes(utf8::decode_one(text.substr(i)).c)) break;
    text = text.substr(0, i);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0, i = 0;
  while (i < text.size()) {
    const auto d = utf8::decode_one(text.substr(i));
    if (!is_line_end(d.c)) {
      i += d.n_bytes;
      continue;
    }
    const size_t n_end = text.substr(i, 2) == "\r\n" ? 2 : d.n_bytes;
    lines.push_back(text.substr(begin, i - begin + (keep_ends ? n_end : 0)));
    begin = i = i + n_end;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

Slice resolve_slice(int64_t n, std::optional<int64_t> start, std::optional<int64_t> stop, std::optional<int64_t> step) {
  const int64_t by = step.value_or(1);
  if (by == 0) raise("slice step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
  const auto place = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? std::max<int64_t>(*at, -n - 1) + n : *at, low, high);
  };
  const int64_t from = place(start, by < 0 ? high : low), to = place(stop, by < 0 ? low : high);
  int64_t count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) count = by < -n ? 1 : (from - to - 1) / -by + 1;
  return {from, by, count};
}

}  // namespace ridge::jinja
