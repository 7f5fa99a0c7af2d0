// Ids and texts equal those of Hugging Face's tokenizers and llama.cpp, on shipped small tokenizers and on the real ones beside the repository.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <sstream>
#include <thread>

#include "base/utf8.h"
#include "files/gguf.h"
#include "text/tokenizer_data.h"

namespace ridge {
namespace {

void expect_as_expected(const Tokenizer& tokenizer, const std::string& file) {
  const auto cases = test::read_jsonl(file);
  ASSERT_GT(cases.size(), 10u) << file;
  for (const Json& c : cases) {
    const std::string text = c["text"];
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << file << ": " << c["text"];
    EXPECT_EQ(tokenizer.decode(ids), c["decoded"].get<std::string>()) << file << ": " << c["text"];
    if (c.contains("special_ids")) {
      EXPECT_EQ(tokenizer.encode(text, true), c["special_ids"].get<std::vector<int32_t>>()) << file << ": " << c["text"];
    }
  }
}

GgufVocabulary vocabulary_of(const std::string& path) {
  const GgufFile file(path);
  const GgufMetadata& m = file.metadata();
  const auto strings = [&](const char* key) {
    const auto views = m.strings(key).value_or(std::vector<std::string_view>{});
    return std::vector<std::string>(views.begin(), views.end());
  };
  GgufVocabulary v{.model = m.string("tokenizer.ggml.model").value(), .pre = m.string("tokenizer.ggml.pre").value_or("default"), .tokens = strings("tokenizer.ggml.tokens"),
                   .scores = m.floats("tokenizer.ggml.scores").value_or(std::vector<float>{}), .merges = strings("tokenizer.ggml.merges")};
  for (const int64_t t : m.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>{})) v.types.push_back(static_cast<int32_t>(t));
  v.add_space_prefix = m.boolean("tokenizer.ggml.add_space_prefix");
  if (const auto bos = m.integer("tokenizer.ggml.bos_token_id")) v.bos = static_cast<int32_t>(*bos);
  return v;
}

// Texts between lines of "__ggml_vocab_test__", one line of ids for each.
void expect_as_llama_cpp(const std::string& gguf) {
  const auto tokenizer = Tokenizer::from_gguf(vocabulary_of(gguf), gguf);
  const std::string input = read_file(gguf + ".inp");
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  for (size_t at = 0; at < input.size();) {
    const size_t next = input.find(separator, at);
    texts.push_back(input.substr(at, next == std::string::npos ? next : next - at));
    if (next == std::string::npos) break;
    at = next + separator.size();
  }
  std::istringstream lines(read_file(gguf + ".out"));
  size_t n = 0;
  for (std::string line; std::getline(lines, line); ++n) {
    ASSERT_LT(n, texts.size());
    std::istringstream in(line);
    const std::vector<int32_t> ids{std::istream_iterator<int32_t>(in), {}};
    EXPECT_EQ(tokenizer->encode(texts[n], false, false), ids) << gguf << ": " << Json(texts[n]);
    EXPECT_EQ(tokenizer->decode(ids), texts[n]) << gguf;
  }
  EXPECT_EQ(n, texts.size());
}

TEST(Tokenizer, ShippedTokenizersAgreeWithHuggingFace) {
  for (const std::string& name : test::shipped_names()) {
    SCOPED_TRACE(name);
    expect_as_expected(*test::shipped(name), test::data_path(name + ".expected.jsonl"));
  }
}

TEST(Tokenizer, RealTokenizersAgreeWithHuggingFace) {
  if (!std::filesystem::exists(test::shared_path("gpt2"))) GTEST_SKIP() << "../shared/tokenizers is not there";
  for (const char* name : {"gpt2", "llama3_1", "mistral_v0_1", "qwen3"}) {
    const std::string folder = test::shared_path(name);
    expect_as_expected(*test::load(folder + "/tokenizer.json"), folder + "/expected.jsonl");
  }
}

TEST(Tokenizer, GgufVocabulariesAgreeWithLlamaCpp) {
  if (!std::filesystem::exists(test::shared_path("gguf_vocabs"))) GTEST_SKIP() << "../shared/tokenizers is not there";
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::shared_path("gguf_vocabs"))) {
    if (entry.path().extension() != ".gguf") continue;
    expect_as_llama_cpp(entry.path());
    ++n;
  }
  EXPECT_GT(n, 0);
}

TEST(Tokenizer, EveryNamedPreTokenizerOfGgufCompilesAndLosesNoText) {
  GgufVocabulary v{.model = "gpt2"};
  const auto byte_level = test::shipped("byte_level");
  for (int id = 0; id < byte_level->n_vocab(); ++id) v.tokens.push_back(byte_level->token_name(id));
  const std::string text = "Hello  WORLD's 'ſ 1234567 abc123 12345x\n\n  你好 世界 こんにちは 한국어 naïve 😶‍🌫️ ... (x)[0] \t\n  $5,000.00 ІПривет मनी\r\n end   ";
  for (const char* pre : {"default", "gpt-2", "llama-bpe", "dbrx", "jais-2", "qwen2", "qwen35", "deepseek-llm", "deepseek-coder", "deepseek-v3", "youtu", "falcon", "starcoder",
                          "smollm", "bloom", "viking", "tekken", "gpt-4o", "tiny_aya", "kimi-k2", "superbpe", "chameleon", "bailingmoe", "seed-coder", "afmoe", "laguna", "exaone-moe",
                          "minicpm5"}) {
    v.pre = pre;
    const auto t = Tokenizer::from_gguf(v, pre);
    EXPECT_EQ(t->decode(t->encode(text)), text) << pre;
  }
}

TEST(Tokenizer, ByteLevelTokenizersReturnEveryText) {
  const auto tokenizer = test::shipped("byte_level");
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int n = static_cast<int>(random() % 60); n > 0; --n) {
      // Not composed by NFC: ASCII, CJK, emoji.
      switch (random() % 4) {
        case 0: utf8::append(text, 0x4E00 + random() % 0x5000); break;
        case 1: utf8::append(text, 0x1F300 + random() % 0x300); break;
        default: text += static_cast<char>(random() % 128); break;
      }
    }
    const auto ids = tokenizer->encode(text, false, false);
    std::string bytes;
    for (const int32_t id : ids) bytes += tokenizer->token_bytes(id);
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_EQ(bytes, text);
  }
}

TEST(Tokenizer, SpecialTokensInUserTextAreInertWhenAsked) {
  for (const char* name : {"byte_level", "sentencepiece_bpe", "unigram", "unigram_bytes"}) {
    const auto t = test::shipped(name);
    const std::string text = "say <s> or </s> <unk> <|endoftext|>";
    for (const int32_t id : t->encode(text, false, false)) EXPECT_FALSE(t->is_special(id) && t->token_name(id) != "<unk>") << name << " " << t->token_name(id);
    const auto parsed = t->encode("<s>");
    ASSERT_EQ(parsed.size(), 1u) << name;
    EXPECT_TRUE(t->is_special(parsed[0]));
    EXPECT_EQ(t->decode(parsed, true), "");
  }
}

TEST(Tokenizer, IllFormedTextIsReadAsReplacementCharacters) {
  for (const std::string& name : test::shipped_names()) {
    const auto t = test::shipped(name);
    for (const std::string bad : {"\xFF", "a\xC3", "\xE2\x96z", "\xED\xA0\x80", "\xF0\x9F\x98", "ok \x80\x80 ok"}) EXPECT_EQ(t->encode(bad), t->encode(utf8::replace_invalid(bad))) << name;
  }
}

TEST(Tokenizer, IdsThatDoNotExistAreNoText) {
  const auto t = test::shipped("byte_level");
  const std::vector<int32_t> ids{-1, 1 << 30, t->n_vocab()};
  EXPECT_EQ(t->decode(ids), "");
  EXPECT_EQ(t->token_name(-5), "");
}

TEST(Tokenizer, LongRunsTakeLinearTime) {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& name : test::shipped_names()) {
    const auto t = test::shipped(name);
    for (const std::string& unit : {std::string("a"), std::string(" "), std::string("\n"), std::string("7"), std::string("!"), std::string("e\u0301\u0323"), std::string("ab ")}) {
      std::string text;
      while (text.size() < (1 << 18)) text += unit;
      EXPECT_GT(t->encode(text + "x").size(), 0u) << name;
    }
  }
  // Quadratic work on 256 KB would take minutes for each of the 56 texts.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Tokenizer, ThreadsMayShareOne) {
  const auto t = test::shipped("byte_level");
  const std::string text = read_file(test::data_path("byte_level.expected.jsonl"));
  const auto expected = t->encode(text);
  std::vector<std::jthread> threads;
  std::atomic<int> n_equal = 0;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { for (int k = 0; k < 5; ++k) n_equal += t->encode(text) == expected; });
  threads.clear();
  EXPECT_EQ(n_equal, 20);
}

}  // namespace
}  // namespace ridge
