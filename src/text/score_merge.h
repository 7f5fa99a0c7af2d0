// SentencePiece's BPE as GGUF files carry it: no list of merges, but a score per token. Two neighbours may merge when their text together is a token; the
// highest score goes first. What ends as no token becomes its bytes.
#pragma once
#include <array>
#include <memory>

#include "text/token_model.h"
#include "text/vocabulary.h"

namespace ridge {

class ScoreMerge final : public TokenModel {
 public:
  // `scores` by id. `inert`: ids that no text may become (control, unknown and byte tokens). `unk_id` may be -1 when every byte has a token.
  ScoreMerge(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<float>& scores, std::vector<bool> inert, int32_t unk_id, std::string_view what);

  void encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const override;
  std::string description() const override;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<bool> inert_;
  std::vector<uint32_t> ranks_;             // by id; equal scores share a rank
  std::array<int32_t, 256> byte_ids_;
  bool words_are_apart_ = true;

  int32_t find(std::string_view text) const;
};

}  // namespace ridge
