// Tokenizer::from_gguf: the vocabulary inside a GGUF file as the same pipeline. "gpt2" is byte-level BPE with a named pre-tokenizer, "llama" is SentencePiece
// (merges by score, byte fallback). Control and unknown tokens are special; user-defined ones are added tokens that are text.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/pipeline.h"
#include "text/score_merge.h"

namespace ridge {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Tokens that end a turn or a text. Converters have marked some of them as text; they are control tokens whatever the file says.
constexpr std::array<std::string_view, 14> kEndMarks{"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "<|eom_id|>",
                                                     "<|end_of_turn|>", "< EOT >", "_<EOT>", "<|return|>", "<|call|>", "<turn|>"};

class GgufTokenizer {
 public:
  GgufTokenizer(const GgufVocabulary& v, std::string_view what) : v_(v), what_(what) {}

  std::unique_ptr<Tokenizer> make() {
    read_tokens();
    if (v_.model == "gpt2") make_bpe();
    else if (v_.model == "llama") make_sentencepiece();
    else fail("{}: the vocabulary model \"{}\" (tokenizer.ggml.model) is not supported; \"gpt2\" and \"llama\" are", what_, v_.model);
    frame();
    parts_.added = AddedTokens(std::move(added_), nullptr);
    return std::make_unique<PipelineTokenizer>(std::move(parts_));
  }

 private:
  const GgufVocabulary& v_;
  std::string_view what_;
  TokenizerParts parts_;
  std::vector<AddedToken> added_;
  std::vector<bool> inert_;
  bool add_bos_ = false;
  int32_t default_bos_ = -1, default_eos_ = -1;

  int32_t type(size_t id) const { return v_.types.empty() ? kNormal : v_.types[id]; }

  void read_tokens() {
    const size_t n = v_.tokens.size();
    if (n == 0) fail("{}: tokenizer.ggml.tokens is empty", what_);
    if (!v_.types.empty() && v_.types.size() != n) fail("{}: {} token types for {} tokens", what_, v_.types.size(), n);
    auto vocabulary = std::make_shared<Vocabulary>();
    vocabulary->reserve(n);
    inert_.resize(n);
    for (size_t id = 0; id < n; ++id) {
      std::string name = v_.tokens[id].empty() ? fmt::format("[EMPTY_{}]", id) : v_.tokens[id];
      // Some files hold tokens cut inside a character; as text they can never occur.
      if (!utf8::is_valid(name)) name = utf8::replace_invalid(name);
      const bool special = type(id) == kControl || type(id) == kUnknown || std::find(kEndMarks.begin(), kEndMarks.end(), name) != kEndMarks.end();
      inert_[id] = special || type(id) == kByte;
      if (special || type(id) == kUserDefined) added_.push_back({.content = name, .id = static_cast<int32_t>(id), .special = special});
      vocabulary->insert_or_alias(std::move(name), static_cast<int64_t>(id), what_);
    }
    parts_.vocabulary = std::move(vocabulary);
  }

  void make_bpe() {
    const GgufPreTokenizer* pre = find_gguf_pre_tokenizer(v_.pre);
    if (!pre) fail("{}: the pre-tokenizer \"{}\" (tokenizer.ggml.pre) is not known", what_, v_.pre);
    for (const std::string_view pattern : pre->patterns) {
      if (pattern == kDigitGroups) parts_.pre_tokenizers.push_back(make_digit_groups(false, false));
      else if (pattern == kDigitGroupsToBoundary) parts_.pre_tokenizers.push_back(make_digit_groups(false, true));
      else if (pattern == kNumberGroups) parts_.pre_tokenizers.push_back(make_digit_groups(true, false));
      else parts_.pre_tokenizers.push_back(make_split(Pattern::regex(pattern, what_), SplitBehavior::isolated, false));
    }
    MergeList merges;
    merges.reserve(v_.merges.size());
    for (const std::string& line : v_.merges) {
      const size_t space = line.find(' ', 1);           // from 1: a token may begin with a space, or be one
      if (space == std::string::npos) fail("{}: the merge \"{}\" is not two tokens with a space between", what_, line);
      merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    const BpeOptions options{.bytes = !pre->raw_text, .byte_fallback = pre->raw_text, .ignore_merges = pre->ignore_merges};
    parts_.model = std::make_unique<Bpe>(parts_.vocabulary, merges, options, inert_, what_);
    if (pre->raw_text) parts_.normalizer = make_space_marker(false);
    parts_.decoder = pre->raw_text ? make_sentencepiece_decoder(false) : make_byte_level_decoder();
    add_bos_ = pre->add_bos;
  }

  void make_sentencepiece() {
    const bool prefix = v_.add_space_prefix.value_or(true);
    if (v_.scores.empty()) fail("{}: a \"llama\" vocabulary needs tokenizer.ggml.scores", what_);
    const int32_t unk = v_.unk.value_or(0);
    if (!parts_.vocabulary->has(unk)) fail("{}: tokenizer.ggml.unknown_token_id {} is not a token", what_, unk);
    parts_.normalizer = make_space_marker(prefix);
    parts_.model = std::make_unique<ScoreMerge>(parts_.vocabulary, v_.scores, inert_, unk, what_);
    parts_.decoder = make_sentencepiece_decoder(prefix);
    add_bos_ = true;
    default_bos_ = 1;
    default_eos_ = 2;
  }

  void frame() {
    const auto put = [&](std::vector<int32_t>& where, int32_t id, const char* key) {
      if (id < 0) return;
      if (!parts_.vocabulary->has(id)) fail("{}: {} {} is not one of the {} tokens", what_, key, id, parts_.vocabulary->size());
      where.push_back(id);
    };
    if (v_.add_bos.value_or(add_bos_)) put(parts_.frame.before, v_.bos.value_or(default_bos_), "tokenizer.ggml.bos_token_id");
    if (v_.add_eos.value_or(false)) put(parts_.frame.after, v_.eos.value_or(default_eos_), "tokenizer.ggml.eos_token_id");
  }
};

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_gguf(const GgufVocabulary& vocabulary, std::string_view what) { return GgufTokenizer(vocabulary, what).make(); }

}  // namespace ridge
