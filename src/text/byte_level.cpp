// The alphabet: printable Latin-1 bytes stand for themselves, the other 68 follow from U+0100 on, in order.
#include "text/byte_level.h"

#include "base/utf8.h"

namespace ridge::byte_level {
namespace {

constexpr bool stands_for_itself(int byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE; }

constexpr std::array<int16_t, 0x144> make_bytes() {
  std::array<int16_t, 0x144> bytes{};
  for (auto& b : bytes) b = -1;
  int next = 0x100;
  for (int b = 0; b < 256; ++b) bytes[stands_for_itself(b) ? b : next++] = static_cast<int16_t>(b);
  return bytes;
}
constexpr auto kBytes = make_bytes();

}  // namespace

const std::array<std::string, 256>& characters() {
  static const auto table = [] {
    std::array<std::string, 256> t;
    for (size_t c = 0; c < kBytes.size(); ++c)
      if (kBytes[c] >= 0) utf8::append(t[kBytes[c]], static_cast<char32_t>(c));
    return t;
  }();
  return table;
}

std::string to_characters(std::string_view bytes) {
  const auto& table = characters();
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const unsigned char b : bytes) out += table[b];
  return out;
}

std::optional<std::string> to_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded d = utf8::decode_one(text);
    if (!d.valid || d.c >= kBytes.size() || kBytes[d.c] < 0) return std::nullopt;
    out += static_cast<char>(kBytes[d.c]);
    text.remove_prefix(d.n_bytes);
  }
  return out;
}

}  // namespace ridge::byte_level
