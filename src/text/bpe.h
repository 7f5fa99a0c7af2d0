// Byte pair encoding: a piece becomes its characters (or bytes), then the pair of neighbours that was learned first is merged, again and again.
// Merges are a table from a pair of ids to (rank, id of the merged token): open addressing, 16 bytes a slot, at most half full.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "text/merge.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace ridge {

struct BpeOptions {
  bool bytes = false;                 // pieces are raw bytes and the vocabulary is written in the byte-level alphabet
  bool byte_fallback = false;         // a character without a token becomes its bytes' <0xXX>
  bool ignore_merges = false;         // a piece that is a token is that token, whatever the merges say
  bool fuse_unk = false;              // neighbouring unknown characters become one unk
  std::optional<std::string> unk;
  std::string continuing_subword_prefix, end_of_word_suffix;
};

using MergeList = std::vector<std::pair<std::string, std::string>>;

class Bpe final : public TokenModel {
 public:
  // `inert`: ids that no text may become (special tokens); may be shorter than the vocabulary. Throws Error for a merge of strings that are no tokens.
  Bpe(std::shared_ptr<const Vocabulary> vocabulary, const MergeList& merges, BpeOptions options, std::vector<bool> inert, std::string_view what);

  void encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const override;
  std::string description() const override;

 private:
  struct Slot { uint64_t pair; Merge merge; };
  std::shared_ptr<const Vocabulary> vocabulary_;
  BpeOptions options_;
  std::vector<bool> inert_;
  std::vector<Slot> slots_;
  size_t n_merges_ = 0;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_;       // bytes mode: the byte's character; otherwise <0xXX>; -1 when there is none
  std::optional<Vocabulary> raw_;           // bytes mode with ignore_merges: tokens by their bytes
  bool words_are_apart_ = false;            // no merge crosses from another character into U+2581: words can be encoded one by one

  void add_merges(const MergeList& merges, std::string_view what);
  size_t slot_of(uint64_t pair) const;
  void first_symbols(std::vector<MergeSymbol>& symbols, std::string_view text) const;
  std::optional<int32_t> whole(std::string_view text) const;
  void encode_one(std::vector<int32_t>& out, std::string_view text, MergeScratch& scratch) const;
};

// Calls f(word) for the parts of a text that begin with a run of U+2581 (and what is before the first).
template <class F>
void for_each_word(std::string_view text, F&& f) {
  constexpr std::string_view kMark = "\u2581";
  size_t begin = 0;
  for (size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at)) {
    if (at > begin) f(text.substr(begin, at - begin));
    begin = at;
    while (text.substr(at).starts_with(kMark)) at += kMark.size();
  }
  if (begin < text.size()) f(text.substr(begin));
}

// True when `token` has U+2581 after another character: then merges may cross the boundary of words.
bool crosses_words(std::string_view token);

}  // namespace ridge
