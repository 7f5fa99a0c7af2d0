#include "engine/tokenizer_of.h"

#include <limits>

#include "base/error.h"

namespace ridge {
namespace {

std::vector<std::string> strings(const GgufMetadata& m, std::string_view key) {
  const auto views = m.strings(key).value_or(std::vector<std::string_view>{});
  return {views.begin(), views.end()};
}

std::optional<int32_t> id(const GgufMetadata& m, std::string_view key, std::string_view what) {
  const auto v = m.integer(key);
  if (!v) return std::nullopt;
  if (*v == -1 || *v == std::numeric_limits<uint32_t>::max()) return std::nullopt;        // how some converters write "none"
  if (*v < 0 || *v > std::numeric_limits<int32_t>::max()) fail("{}: {} is {}, which is no token id", what, key, *v);
  return static_cast<int32_t>(*v);
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const GgufMetadata& m, std::string_view what) {
  GgufVocabulary v;
  const auto model = m.string("tokenizer.ggml.model");
  if (!model) fail("{}: has no vocabulary (tokenizer.ggml.model); take a complete GGUF file", what);
  v.model = *model;
  v.pre = m.string("tokenizer.ggml.pre").value_or("default");
  v.tokens = strings(m, "tokenizer.ggml.tokens");
  v.scores = m.floats("tokenizer.ggml.scores").value_or(std::vector<float>{});
  for (const int64_t t : m.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>{})) v.types.push_back(static_cast<int32_t>(t));
  v.merges = strings(m, "tokenizer.ggml.merges");
  v.bos = id(m, "tokenizer.ggml.bos_token_id", what);
  v.eos = id(m, "tokenizer.ggml.eos_token_id", what);
  v.eot = id(m, "tokenizer.ggml.eot_token_id", what);
  v.unk = id(m, "tokenizer.ggml.unknown_token_id", what);
  v.pad = id(m, "tokenizer.ggml.padding_token_id", what);
  v.add_bos = m.boolean("tokenizer.ggml.add_bos_token");
  v.add_eos = m.boolean("tokenizer.ggml.add_eos_token");
  v.add_space_prefix = m.boolean("tokenizer.ggml.add_space_prefix");
  v.remove_extra_whitespaces = m.boolean("tokenizer.ggml.remove_extra_whitespaces");
  return v;
}

std::unique_ptr<Tokenizer> make_tokenizer(const Checkpoint& checkpoint) {
  if (!checkpoint.tokenizer_json.empty()) return Tokenizer::from_json(checkpoint.tokenizer_json, checkpoint.name + ": tokenizer.json");
  if (checkpoint.gguf) return Tokenizer::from_gguf(read_gguf_vocabulary(checkpoint.gguf->metadata(), checkpoint.name), checkpoint.name);
  fail("{}: has no tokenizer.json; fetch it with the model (ridge pull takes it along)", checkpoint.name);
}

}  // namespace ridge
