// The tokenizer of a checkpoint as llama.cpp's metadata.
#include "files/gguf_tokenizer.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

Json bpe(const char* pattern, bool ignore_merges = false) {
  return {{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({Json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}}, Json{{"type", "ByteLevel"}}})}}},
          {"model", {{"type", "BPE"}, {"ignore_merges", ignore_merges}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", Json::array({"a b"})}}},
          {"added_tokens", Json::array({Json{{"id", 3}, {"content", "<s>"}, {"special", true}}, Json{{"id", 4}, {"content", "<tool>"}, {"special", false}}})},
          {"post_processor", {{"type", "TemplateProcessing"}, {"single", Json::array({Json{{"SpecialToken", {{"id", "<s>"}}}}})}}}};
}

Checkpoint with(const Json& tokenizer) {
  Checkpoint c;
  c.config = {{"vocab_size", 6}};
  c.generation_config = c.metadata = Json::object();
  c.tokenizer_config = {{"pad_token", "<tool>"}};
  c.tokenizer_json = tokenizer.dump();
  c.bos_token = "<s>";
  c.bos_id = 3;
  c.chat_template = "{{ messages }}";
  return c;
}

Json value_of(const std::vector<GgufPair>& pairs, std::string_view key) {
  for (const GgufPair& p : pairs)
    if (p.key == key) return p.value;
  return nullptr;
}

TEST(GgufTokenizer, TokensTypesMergesAndSpecialIdsGoAlong) {
  const auto pairs = tokenizer_metadata(with(bpe("x")));
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.tokens"), Json::parse(R"(["a", "b", "ab", "<s>", "<tool>", "[PAD5]"])"));
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.token_type"), Json::parse("[1, 1, 1, 3, 4, 5]"));
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.merges"), Json::parse(R"(["a b"])"));
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.bos_token_id"), 3);
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.padding_token_id"), 4);
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(value_of(pairs, "tokenizer.chat_template"), "{{ messages }}");
  EXPECT_EQ(value_of(pairs, "tokenizer.huggingface.json"), with(bpe("x")).tokenizer_json);
}

TEST(GgufTokenizer, TheRuleThatSplitsTextIsNamedAsLlamaCppNamesIt) {
  const std::pair<const char*, const char*> cases[] = {
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)", "qwen2"},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)", "qwen35"},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)", "gpt-4o"},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)", "tekken"},
      {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)", "deepseek-v3"},
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt-2"}};
  for (const auto& [pattern, name] : cases) EXPECT_EQ(value_of(tokenizer_metadata(with(bpe(pattern))), "tokenizer.ggml.pre"), name) << pattern;
  const char* llama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(value_of(tokenizer_metadata(with(bpe(llama3, true))), "tokenizer.ggml.pre"), "llama-bpe");
  EXPECT_EQ(value_of(tokenizer_metadata(with(bpe(llama3, false))), "tokenizer.ggml.pre"), "dbrx");
}

TEST(GgufTokenizer, PiecesTellWhetherATextBeginsWithASpace) {
  Json pieces = bpe("x");
  pieces["model"]["byte_fallback"] = true;
  pieces["model"]["vocab"]["<0x0A>"] = 5;
  pieces["pre_tokenizer"] = nullptr;
  pieces["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({Json{{"type", "Prepend"}, {"prepend", "_"}}})}};
  const auto pairs = tokenizer_metadata(with(pieces));
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.model"), "llama");
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.add_space_prefix"), true);
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.token_type")[5], 6);
  EXPECT_EQ(value_of(pairs, "tokenizer.ggml.scores")[2], -2.0);
  pieces["normalizer"] = nullptr;
  EXPECT_EQ(value_of(tokenizer_metadata(with(pieces)), "tokenizer.ggml.add_space_prefix"), false);
}

}  // namespace
}  // namespace ridge
