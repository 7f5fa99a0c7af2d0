// A tokenizer.json or a GGUF vocabulary that is wrong is an Error that names the place; never a crash, never a guess.
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizer_data.h"

namespace ridge {
namespace {

const char* kSmall = R"({"version": "1.0", "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
  "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "abc": 4}, "merges": ["a b", "ab c"]}})";

std::string error_of(const std::string& json) {
  try {
    Tokenizer::from_json(json, "t.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// The small tokenizer with one text replaced by another.
std::string with(const std::string& from, const std::string& to) {
  std::string json = kSmall;
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

TEST(TokenizerMalformed, TheSmallOneIsRight) {
  const auto t = Tokenizer::from_json(kSmall, "t.json");
  EXPECT_EQ(t->encode("abcab<s>c"), (std::vector<int32_t>{4, 2, 5, 3}));
  EXPECT_EQ(t->n_vocab(), 6);
}

TEST(TokenizerMalformed, EachMistakeIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "JSON"},
      {"[]", "must be an object"},
      {"{}", "model"},
      {std::string(kSmall).substr(0, 200), "JSON"},
      {with("\"BPE\"", "\"Magic\""), "Magic"},
      {with("\"BPE\"", "7"), "must be a string"},
      {with(R"("a": 0)", R"("a": -1)"), "-1"},
      {with(R"("a": 0)", R"("a": 4294967296)"), "4294967296"},
      {with(R"("a": 0)", R"("a": 1e3)"), "whole number"},
      {with(R"("a": 0)", R"("a": "x")"), "vocab"},
      {with(R"("a": 0)", R"("a": {"a": 0})"), "vocab"},
      {with(R"("b": 1)", R"("b": 0)"), "two tokens"},
      {with(R"("b": 1)", R"("b": 1, "b": 7)"), "two ids"},
      {with(R"("a b", "ab c")", R"("a z")"), "\"z\" is not in the vocabulary"},
      {with(R"("a b", "ab c")", R"("a c")"), "\"ac\""},
      {with(R"("a b", "ab c")", R"("abc")"), "one space"},
      {with(R"("a b", "ab c")", R"(["a"])"), "two strings"},
      {with(R"("a b", "ab c")", R"(["a", "b", "c"])"), "more than two"},
      {with(R"("a b", "ab c")", "3"), "merges"},
      {with(R"(["a b", "ab c"])", "{}"), "merges"},
      {with(R"(, "merges": ["a b", "ab c"])", ""), "merges"},
      {with(R"("merges")", R"("dropout": 0.5, "merges")"), "dropout"},
      {with(R"("merges")", R"("unk_token": "<nope>", "merges")"), "<nope>"},
      {with(R"("id": 5)", R"("id": -5)"), "-5"},
      {with(R"("id": 5)", R"("id": 99999999999)"), "99999999999"},
      {with(R"("id": 5)", R"("id": 2)"), "two tokens"},
      {with(R"("content": "<s>")", R"("content": "ab")"), "two ids"},
      {with(R"("content": "<s>", )", ""), "content"},
      {with(R"("special": true)", R"("special": "yes")"), "true or false"},
      {with(R"("normalizer": null)", R"("normalizer": {"type": "Zalgo"})"), "Zalgo"},
      {with(R"("normalizer": null)", R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="})"), "charsmap"},
      {with(R"("normalizer": null)", R"("normalizer": {"type": "Sequence"})"), "normalizers"},
      {with(R"("normalizer": null)", R"("normalizer": [])"), "must be an object"},
      {with(R"("pre_tokenizer": null)", R"("pre_tokenizer": {"type": "UnicodeScripts"})"), "UnicodeScripts"},
      {with(R"("pre_tokenizer": null)", R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated"})"), "(("},
      {with(R"("pre_tokenizer": null)", R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a"}, "behavior": "Isolated"})"), "[a"},
      {with(R"("pre_tokenizer": null)", R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "x"}, "behavior": "Shuffled"})"), "Shuffled"},
      {with(R"("pre_tokenizer": null)", R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated"})"), "pattern"},
      {with(R"("post_processor": null)", R"("post_processor": {"type": "Stamp"})"), "Stamp"},
      {with(R"("post_processor": null)", R"("post_processor": {"type": "BertProcessing", "sep": ["x", 77], "cls": ["y", 5]})"), "77"},
      {with(R"("post_processor": null)", R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q"}}], "special_tokens": {}})"), "q"},
      {with(R"("decoder": null)", R"("decoder": {"type": "Enigma"})"), "Enigma"},
      {with(R"("decoder": null)", R"("decoder": {"type": "Strip", "start": -1})"), "negative"},
  };
  for (const auto& [json, wanted] : cases) {
    const std::string message = error_of(json);
    EXPECT_NE(message.find(wanted), std::string::npos) << "wanted \"" << wanted << "\" in: \"" << message << "\"\n" << json;
    EXPECT_TRUE(message.starts_with("t.json")) << message;
  }
}

TEST(TokenizerMalformed, NestingWithoutEndIsRefused) {
  std::string json;
  for (int i = 0; i < 100000; ++i) json += R"({"normalizer":)";
  EXPECT_NE(error_of(json), "");
  std::string sequence = R"({"type": "NFC"})";
  for (int i = 0; i < 200; ++i) sequence = R"({"type": "Sequence", "normalizers": [)" + sequence + "]}";
  EXPECT_NE(error_of(with("\"normalizer\": null", "\"normalizer\": " + sequence)).find("nested"), std::string::npos);
}

TEST(TokenizerMalformed, NormalizersThatGrowWithoutEndAreStopped) {
  std::string parts;
  for (int i = 0; i < 60; ++i) parts += std::string(i ? "," : "") + R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const auto t = Tokenizer::from_json(with("\"normalizer\": null", R"("normalizer": {"type": "Sequence", "normalizers": [)" + parts + "]}"), "t.json");
  EXPECT_THROW(t->encode("aaaa"), Error);
}

TEST(TokenizerMalformed, APatternThatBacktracksWithoutEndIsStopped) {
  const auto t = Tokenizer::from_json(with("\"pre_tokenizer\": null", R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated"})"), "t.json");
  EXPECT_EQ(t->encode("aaa"), (std::vector<int32_t>{0, 0, 0}));
  EXPECT_THROW(t->encode(std::string(80, 'a') + "b"), Error);
}

TEST(TokenizerMalformed, GgufVocabulariesAreChecked) {
  const GgufVocabulary good{.model = "llama", .tokens = {"<unk>", "<s>", "</s>", "a", "b", "ab"}, .scores = {0, 0, 0, -1, -2, -0.5f}, .types = {2, 3, 3, 1, 1, 1}};
  EXPECT_EQ(Tokenizer::from_gguf(good, "g")->encode("abb", true), (std::vector<int32_t>{1, 0, 0, 0, 5, 4}));
  const auto refused = [&](auto change) {
    GgufVocabulary v = good;
    change(v);
    EXPECT_THROW(Tokenizer::from_gguf(v, "g"), Error);
  };
  refused([](GgufVocabulary& v) { v.model = "rwkv"; });
  refused([](GgufVocabulary& v) { v.tokens.clear(); });
  refused([](GgufVocabulary& v) { v.scores.pop_back(); });
  refused([](GgufVocabulary& v) { v.scores.clear(); });
  refused([](GgufVocabulary& v) { v.scores[3] = std::numeric_limits<float>::quiet_NaN(); });
  refused([](GgufVocabulary& v) { v.types.pop_back(); });
  refused([](GgufVocabulary& v) { v.bos = 600; });
  refused([](GgufVocabulary& v) { v.unk = 600; });
  refused([](GgufVocabulary& v) { v.model = "gpt2"; v.pre = "nobody-knows"; });
  refused([](GgufVocabulary& v) { v.model = "gpt2"; v.pre = "gpt-2"; v.merges = {"ab"}; });
  refused([](GgufVocabulary& v) { v.model = "gpt2"; v.pre = "gpt-2"; v.merges = {"a zz"}; });
}

}  // namespace
}  // namespace ridge
