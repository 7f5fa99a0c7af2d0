// UTF-8, decoded strictly: overlong forms, surrogates and values past U+10FFFF are errors. Ill-formed bytes become U+FFFD one maximal part at a time, as
// WHATWG and Python's errors="replace" do.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::utf8 {

constexpr char32_t kReplacement = 0xFFFD;

struct Decoded {
  char32_t c;
  int n_bytes;   // consumed, at least 1
  bool valid;
};
Decoded decode_one(std::string_view text);                // text must not be empty

void append(std::string& out, char32_t c);
std::u32string decode(std::string_view text);             // ill-formed parts become U+FFFD
std::string encode(std::u32string_view text);
bool is_valid(std::string_view text);
std::string replace_invalid(std::string_view text);

// Bytes at the end of `text` that begin a character which is not complete yet (0 to 3): a stream holds these back.
int n_incomplete_at_end(std::string_view text);

}  // namespace ridge::utf8
