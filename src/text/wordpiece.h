// WordPiece (BERT): a word is the longest token that begins it, then the longest "##" token that begins the rest, ...; unk when that fails. And WordLevel:
// a word is a token or unk.
#pragma once
#include <memory>

#include "text/token_model.h"
#include "text/vocabulary.h"

namespace ridge {

struct WordPieceOptions {
  int32_t unk_id = -1;                      // -1: an unknown word is an Error
  std::string continuing_subword_prefix = "##";
  size_t max_input_chars_per_word = 100;
  bool whole_words = false;                 // WordLevel
};

class WordPiece final : public TokenModel {
 public:
  WordPiece(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options);
  void encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const override;
  std::string description() const override;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  WordPieceOptions options_;

  void encode_one(std::vector<int32_t>& out, std::string_view word) const;
};

}  // namespace ridge
