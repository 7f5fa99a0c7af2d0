#include "base/utf8.h"

#include <algorithm>

namespace ridge::utf8 {

Decoded decode_one(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1, true};
  int n;
  char32_t c;
  // The second byte's range rules out overlong forms, surrogates and values that are too large.
  unsigned char low = 0x80, high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) { n = 2; c = first & 0x1F; }
  else if (first >= 0xE0 && first <= 0xEF) {
    n = 3; c = first & 0x0F;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    n = 4; c = first & 0x07;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else return {kReplacement, 1, false};
  for (int i = 1; i < n; ++i) {
    if (static_cast<size_t>(i) >= text.size() || byte(i) < low || byte(i) > high) return {kReplacement, i, false};
    c = c << 6 | (byte(i) & 0x3F);
    low = 0x80; high = 0xBF;
  }
  return {c, n, true};
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) out += static_cast<char>(c);
  else if (c < 0x800) { out += static_cast<char>(0xC0 | c >> 6); out += static_cast<char>(0x80 | (c & 0x3F)); }
  else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12); out += static_cast<char>(0x80 | (c >> 6 & 0x3F)); out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18); out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F)); out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::u32string decode(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded d = decode_one(text);
    out += d.c;
    text.remove_prefix(d.n_bytes);
  }
  return out;
}

std::string encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append(out, c);
  return out;
}

bool is_valid(std::string_view text) {
  while (!text.empty()) {
    const Decoded d = decode_one(text);
    if (!d.valid) return false;
    text.remove_prefix(d.n_bytes);
  }
  return true;
}

std::string replace_invalid(std::string_view text) { return encode(decode(text)); }

int n_incomplete_at_end(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const unsigned char c = text[text.size() - back];
    if ((c & 0xC0) == 0x80) continue;                                  // a continuation byte: look further back
    const Decoded d = decode_one(text.substr(text.size() - back));
    const size_t wanted = c > 0xF4 || c < 0xC2 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    return !d.valid && static_cast<size_t>(d.n_bytes) == back && wanted > back ? static_cast<int>(back) : 0;
  }
  return 0;
}

}  // namespace ridge::utf8
