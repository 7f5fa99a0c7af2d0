// The middle of a tokenizer: pieces of text to ids. A piece is what the pre-tokenizer left; strings it had to make live in the arena of the call.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct Piece {
  std::string_view text;        // well-formed UTF-8, or the bytes of it where the model takes bytes; not empty
  bool at_start = false;        // begins where the whole text begins
};

using StringArena = std::deque<std::string>;

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual void encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const = 0;      // appends
  virtual std::string description() const = 0;
};

// Remembers within one call what a short piece became: the ids of its first occurrence stand in the output already. Direct-mapped; a text repeats
// its words so often that 8192 places catch nine of ten.
class PieceCache {
 public:
  explicit PieceCache(size_t text_bytes) {
    size_t n = 16;
    while (n < kMaxEntries && n * 8 < text_bytes) n *= 2;
    entries_.resize(n);
  }

  // Calls encode(text, out) unless the ids can be copied from earlier in `out`.
  template <class Encode>
  void append(std::vector<int32_t>& out, std::string_view text, Encode&& encode) {
    if (text.size() > kMaxBytes) { encode(text, out); return; }
    Entry& e = entries_[std::hash<std::string_view>{}(text) & (entries_.size() - 1)];
    if (e.text == text) {
      const size_t begin = out.size();
      out.resize(begin + e.n_ids);
      std::copy_n(out.begin() + e.first, e.n_ids, out.begin() + begin);
      return;
    }
    const size_t first = out.size();
    encode(text, out);
    e = {text, first, out.size() - first};
  }

 private:
  static constexpr size_t kMaxEntries = 8192, kMaxBytes = 64;
  struct Entry { std::string_view text; size_t first = 0, n_ids = 0; };
  std::vector<Entry> entries_;
};

}  // namespace ridge
