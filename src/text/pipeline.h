// The one tokenizer behind the interface: parts in a row. tokenizer_json and GGUF vocabularies differ only in how the parts are chosen.
#pragma once
#include "text/added_tokens.h"
#include "text/decoders.h"
#include "text/normalizers.h"
#include "text/postprocess.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace ridge {

struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;         // the model's own; added tokens may lie outside it
  AddedTokens added;
  std::unique_ptr<Normalizer> normalizer;               // null: none
  PreTokenizerList pre_tokenizers;
  std::unique_ptr<TokenModel> model;
  SpecialFrame frame;
  std::unique_ptr<TokenDecoder> decoder;                     // null: tokens are joined by spaces
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts);

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, bool parse_special) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  std::string token_bytes(int32_t id) const override;
  std::string token_name(int32_t id) const override;
  std::optional<int32_t> find(std::string_view token) const override;
  bool is_special(int32_t id) const override;
  int n_vocab() const override { return n_vocab_; }
  std::string description() const override;

 private:
  TokenizerParts parts_;
  int n_vocab_;

  void encode_text(std::vector<int32_t>& out, std::string_view text, bool at_start) const;
};

}  // namespace ridge
