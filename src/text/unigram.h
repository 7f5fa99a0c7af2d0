// Unigram (SentencePiece): the segmentation of a piece with the largest sum of scores, by Viterbi over a trie of the tokens. A character that no token
// covers alone costs the smallest score less 10 and becomes unk; neighbouring unknowns are one, or their bytes' tokens with byte fallback.
#pragma once
#include <array>
#include <memory>

#include "text/byte_trie.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace ridge {

class Unigram final : public TokenModel {
 public:
  // `scores` by id; `unk_id` -1: none, and a text that needs it is an Error. `inert`: ids that no text may become.
  Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores, int32_t unk_id, bool byte_fallback, const std::vector<bool>& inert);

  void encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const override;
  std::string description() const override;

 private:
  struct Best { double score = 0; size_t begin = 0; int32_t id = -1; };      // of the best path that ends at a byte; id -1: none yet
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<double> scores_;
  int32_t unk_id_;
  double unk_score_;
  bool byte_fallback_;
  ByteTrie trie_;
  std::array<int32_t, 256> byte_ids_;

  void encode_one(std::vector<int32_t>& out, std::string_view text, std::vector<Best>& best) const;
  void append_unknown(std::vector<int32_t>& out, std::string_view text) const;
};

}  // namespace ridge
