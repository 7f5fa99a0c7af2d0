// SentencePiece's precompiled normalization: base64 of [u32 trie bytes][double array of u32][replacements, each ended by a zero byte].
// A unit of the double array (darts-clone): bit 31 leaf, bits 0-30 value of a leaf; else bits 0-7 label, bit 8 "a leaf hangs here", bits 10-30 offset (times
// 256 when bit 9 is set). A grapheme of fewer than six bytes is looked up as a whole, else character by character; the shortest key found replaces it.
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "text/characters.h"
#include "text/normalizers.h"

namespace ridge {
namespace {

std::string decode_base64(std::string_view text, const std::string& what) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int n_bits = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    int v;
    if (c >= 'A' && c <= 'Z') v = c - 'A';
    else if (c >= 'a' && c <= 'z') v = c - 'a' + 26;
    else if (c >= '0' && c <= '9') v = c - '0' + 52;
    else if (c == '+') v = 62;
    else if (c == '/') v = 63;
    else fail("{}: precompiled_charsmap is not base64", what);
    bits = bits << 6 | static_cast<uint32_t>(v);
    if ((n_bits += 6) >= 8) out += static_cast<char>(bits >> (n_bits -= 8) & 0xFF);
  }
  return out;
}

class Charsmap final : public Normalizer {
 public:
  Charsmap(std::string_view base64, const std::string& what) {
    const std::string blob = decode_base64(base64, what);
    uint32_t trie_bytes = 0;
    if (blob.size() >= 4) std::memcpy(&trie_bytes, blob.data(), 4);
    if (blob.size() < 4 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4) fail("{}: precompiled_charsmap is cut off", what);
    trie_.resize(trie_bytes / 4);
    std::memcpy(trie_.data(), blob.data() + 4, trie_bytes);
    replacements_ = blob.substr(4 + trie_bytes);
    if (!utf8::is_valid(replacements_)) fail("{}: precompiled_charsmap holds text that is not UTF-8", what);
  }

  std::string apply(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view grapheme = rest.substr(0, first_grapheme_bytes(rest));
      rest.remove_prefix(grapheme.size());
      if (const char* whole = grapheme.size() < 6 ? find(grapheme) : nullptr) { out += whole; continue; }
      for (std::string_view left = grapheme; !left.empty();) {
        const std::string_view character = left.substr(0, utf8::decode_one(left).n_bytes);
        left.remove_prefix(character.size());
        if (const char* found = find(character)) out += found;
        else out += character;
      }
    }
    return out;
  }

 private:
  std::vector<uint32_t> trie_;
  std::string replacements_;

  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

  const char* find(std::string_view key) const {
    if (trie_.empty()) return nullptr;
    uint64_t node = offset(trie_[0]);
    for (const unsigned char byte : key) {
      if (byte == 0) return nullptr;
      node ^= byte;
      if (node >= trie_.size()) return nullptr;
      const uint32_t unit = trie_[node];
      if ((unit & (1u << 31 | 0xFF)) != byte) return nullptr;
      node ^= offset(unit);
      if (!(unit & 1u << 8)) continue;
      if (node >= trie_.size()) return nullptr;
      const uint32_t at = trie_[node] & 0x7FFFFFFF;
      // A place inside a character would give ill-formed text: only a place that begins one counts.
      if (at >= replacements_.size() || (static_cast<unsigned char>(replacements_[at]) & 0xC0) == 0x80) return nullptr;
      return replacements_.c_str() + at;
    }
    return nullptr;
  }
};

}  // namespace

std::unique_ptr<Normalizer> make_charsmap(std::string_view base64, const std::string& what) { return std::make_unique<Charsmap>(base64, what); }

}  // namespace ridge
