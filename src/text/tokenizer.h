// Text to token ids and back. Built from a tokenizer.json (Hugging Face) or from the vocabulary inside a GGUF file; both become the same pipeline:
// added tokens -> normalizer -> pre-tokenizer -> model (BPE, Unigram, WordPiece) -> post-processor, and a decoder for the way back.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// What a GGUF file says about its vocabulary (tokenizer.ggml.*), as plain values: `text` does not know the file format.
struct GgufVocabulary {
  std::string model;                        // "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
  std::string pre;                          // name of the pre-tokenizer: "default", "llama-bpe", "qwen2", "smollm", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;                // empty when the file has none
  std::vector<int32_t> types;               // 1 normal 2 unknown 3 control 4 user defined 5 unused 6 byte
  std::vector<std::string> merges;          // "left right"
  std::optional<int32_t> bos, eos, eot, unk, pad;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
};

class Tokenizer {
 public:
  // Throws Error naming `what` and the key that is wrong or not supported.
  static std::unique_ptr<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view what);
  static std::unique_ptr<Tokenizer> from_gguf(const GgufVocabulary& vocabulary, std::string_view what);
  virtual ~Tokenizer() = default;

  // `add_special_tokens`: what the post-processor adds (bos, eos). `parse_special`: special tokens written in the text become their ids (Hugging Face
  // always does; false makes user text inert). Any bytes are accepted: ill-formed UTF-8 is handled as U+FFFD where the pipeline needs characters.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = false, bool parse_special = true) const = 0;
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const = 0;

  // The text of one token as raw bytes (a byte-fallback or byte-level token gives its byte), without the decoder's work across tokens.
  virtual std::string token_bytes(int32_t id) const = 0;
  virtual std::string token_name(int32_t id) const = 0;              // as written in the vocabulary
  virtual std::optional<int32_t> find(std::string_view token) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual int n_vocab() const = 0;                                    // one past the largest id
  virtual std::string description() const = 0;                        // "byte-level BPE, 49152 tokens, 48900 merges": for `ridge inspect`
};

// Turns a stream of ids into text that never splits a character: push() returns the text that has become certain, flush() what is left.
// The concatenation equals decode() of all ids, except that an ill-formed tail becomes U+FFFD at flush.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  std::string push(int32_t id);
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> window_;             // ids whose text may still change with the next one
  size_t n_emitted_ = 0;                    // bytes of the window's text that were returned
};

}  // namespace ridge
