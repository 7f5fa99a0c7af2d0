// The canonical ordering of marks is a stable sort here, not utf8proc's exchange of neighbours: that one is quadratic in a run of marks, and text is untrusted.
#include "text/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace ridge {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

void append_decomposed(std::vector<utf8proc_int32_t>& out, char32_t c, bool compatible) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  utf8proc_int32_t buffer[32];                     // the longest decomposition has 18 characters
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 32, options, &boundary);
  if (n <= 0 || n > 32) out.push_back(static_cast<utf8proc_int32_t>(c));
  else out.insert(out.end(), buffer, buffer + n);
}

void order_marks(std::vector<utf8proc_int32_t>& text) {
  for (size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) { ++i; continue; }
    size_t end = i;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + i, text.begin() + end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

}  // namespace

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CS || k == UTF8PROC_CATEGORY_CO;
}

bool is_mark(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_word(char32_t c) {
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC;        // Lu Ll Lt Lm Lo Mn Mc Me Nd Nl
}

bool is_cjk_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// Appends the normal form of `text`, which neither composes nor exchanges marks with what surrounds it.
static void append_normal(std::string& out, std::string_view text, NormalForm form, std::vector<utf8proc_int32_t>& characters) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  characters.clear();
  while (!text.empty()) {
    const utf8::Decoded d = utf8::decode_one(text);
    text.remove_prefix(d.n_bytes);
    if (d.c < 0x80) characters.push_back(static_cast<utf8proc_int32_t>(d.c));
    else append_decomposed(characters, d.c, compatible);
  }
  order_marks(characters);
  size_t n = characters.size();
  if (compose) {
    const auto composed = utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(n),
                                                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    CHECK_GE(composed, 0);
    n = static_cast<size_t>(composed);
  }
  for (size_t i = 0; i < n; ++i) utf8::append(out, static_cast<char32_t>(characters[i]));
}

std::string normalize(std::string_view text, NormalForm form) {
  // An ASCII character changes nothing before it and nothing changes it but marks after it: only runs of others, with the one before them, need work.
  std::string out;
  out.reserve(text.size() + 8);
  std::vector<utf8proc_int32_t> characters;
  const auto is_ascii = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (is_ascii(at)) { ++at; continue; }
    const size_t begin = at > done ? at - 1 : at;
    out.append(text.substr(done, begin - done));
    while (at < text.size() && !is_ascii(at)) ++at;
    append_normal(out, text.substr(begin, at - begin), form, characters);
    done = at;
  }
  return out.append(text.substr(done));
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded d = utf8::decode_one(text);
    text.remove_prefix(d.n_bytes);
    if (d.c == 0x130) out += "i\u0307";                   // the one character whose lower case is two
    else utf8::append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(d.c))));
  }
  return out;
}

size_t first_grapheme_bytes(std::string_view text) {
  utf8proc_int32_t state = 0;
  utf8::Decoded last = utf8::decode_one(text);
  size_t n = last.n_bytes;
  while (n < text.size()) {
    const utf8::Decoded next = utf8::decode_one(text.substr(n));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.c), static_cast<utf8proc_int32_t>(next.c), &state)) break;
    n += next.n_bytes;
    last = next;
  }
  return n;
}

}  // namespace ridge
