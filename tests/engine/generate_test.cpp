// Text out of the engine: pieces add up to the text, stop strings end it wherever they lie, an interrupt ends it at once.
#include "engine/generate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/generation_defaults.h"
#include "engine/tiny_model.h"
#include "engine/word_tokenizer.h"

namespace ridge {
namespace {

// Token i is written "<letters>": two characters of a small alphabet, so that stop strings cross token boundaries.
WordTokenizer words() {
  std::vector<std::string> all;
  for (int i = 0; i < TinyModel::kVocab; ++i) all.push_back({char('a' + i % 5), char('a' + i / 5 % 5)});
  all[2] = "</s>";
  return WordTokenizer(all);
}

struct Fixture : testing::Test {
  TinyModel model;
  WordTokenizer tokenizer = words();
  EngineOptions options = [] {
    EngineOptions o{.device = "ref"};
    o.activations = FormatId::f32;
    o.max_context = 200;
    return o;
  }();
  Engine engine{model.checkpoint(), options};
  Generator generator{engine, tokenizer};

  Request request(int max_tokens = 40) const {
    Request r{.prompt = {5, 6, 7}};
    r.params.temperature = 0;
    r.params.ignore_eos = true;
    r.params.max_tokens = max_tokens;
    return r;
  }
};
using Generate = Fixture;

TEST_F(Generate, PiecesAddUpToTheTextOfTheTokens) {
  std::string streamed;
  const Generation g = generator.run(request(), {.on_text = [&](size_t, std::string_view piece) { streamed += piece; }});
  EXPECT_EQ(streamed, g.text);
  std::vector<int32_t> ids;
  for (const Sampled& s : g.tokens) ids.push_back(s.token);
  EXPECT_EQ(g.text, tokenizer.decode(ids, true));
  EXPECT_EQ(g.finish, FinishReason::length);
  EXPECT_EQ(g.tokens.size(), 40u);
  EXPECT_EQ(g.n_prompt, 3);
  EXPECT_GT(g.seconds_to_first_token, 0);
  EXPECT_GT(g.decode_tokens_per_second(), 0);
}

TEST_F(Generate, AStopStringEndsTheTextWhereverItLiesAndIsNeverShown) {
  const std::string full = generator.run(request()).text;
  for (size_t at = 3; at + 5 < full.size(); at += 7)
    for (const size_t length : {1, 3, 5}) {
      Request r = request();
      const std::string stop = full.substr(at, length);
      r.params.stop = {stop, "never this"};
      std::string streamed;
      const Generation g = generator.run(r, {.on_text = [&](size_t, std::string_view piece) { streamed += piece; }});
      EXPECT_EQ(g.text, full.substr(0, full.find(stop)));
      EXPECT_EQ(streamed, g.text);
      EXPECT_EQ(g.finish, FinishReason::stop);
      EXPECT_EQ(g.stop, stop);
      EXPECT_TRUE(engine.idle());
    }
}

TEST_F(Generate, TheEndingTokenIsNotPartOfTheText) {
  Request r = request();
  r.params.ignore_eos = false;
  r.params.min_tokens = 4;
  r.params.logit_bias = {{2, 1000.0f}};
  const Generation g = generator.run(r);
  EXPECT_EQ(g.finish, FinishReason::stop);
  EXPECT_EQ(g.tokens.size(), 5u);
  EXPECT_EQ(g.text.size(), 8u);
  EXPECT_EQ(g.text, generator.run(request(4)).text);
}

TEST_F(Generate, AnInterruptKeepsWhatWasSaidAndFreesTheEngine) {
  std::atomic<bool> interrupted = false;
  int n = 0;
  const Generation g = generator.run(request(100), {.on_text = [&](size_t, std::string_view) { interrupted = ++n == 6; }, .interrupted = &interrupted});
  EXPECT_EQ(g.finish, FinishReason::cancelled);
  EXPECT_EQ(g.tokens.size(), 6u);
  EXPECT_EQ(g.text.size(), 12u);
  EXPECT_TRUE(engine.idle());
}

TEST_F(Generate, AReportedSeedGivesTheSameAnswerAgain) {
  Request r = request();
  r.params.temperature = 1.5f;
  const Generation first = generator.run(r);
  r.params.seed = first.seed;
  EXPECT_EQ(generator.run(r).text, first.text);
  r.params.seed = first.seed + 1;
  EXPECT_NE(generator.run(r).text, first.text);
}

TEST_F(Generate, ManyRequestsGetTheirOwnAnswers) {
  std::vector<Request> requests;
  std::vector<std::string> expected, streamed(20);
  for (int i = 0; i < 20; ++i) {
    Request r = request(5 + i);
    r.prompt.push_back(10 + i);
    requests.push_back(r);
    expected.push_back(generator.run(r).text);
  }
  const std::vector<Generation> all = generator.run_all(requests, {.on_text = [&](size_t i, std::string_view piece) { streamed[i] += piece; }});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(all[i].text, expected[i]);
    EXPECT_EQ(streamed[i], expected[i]);
  }
}

TEST_F(Generate, ARefusedRequestOrAThrowingCallbackLeavesTheEngineEmpty) {
  Request bad = request();
  bad.prompt = {1000};
  EXPECT_THROW(generator.run_all({request(), bad}), Error);
  EXPECT_TRUE(engine.idle());
  EXPECT_THROW(generator.run(request(), {.on_text = [](size_t, std::string_view) { throw Error("the reader went away"); }}), Error);
  EXPECT_TRUE(engine.idle());
}

TEST_F(Generate, LogprobsComeWithEveryToken) {
  Request r = request(5);
  r.params.n_logprobs = 3;
  for (const Sampled& s : generator.run(r).tokens) {
    ASSERT_EQ(s.top.size(), 3u);
    EXPECT_EQ(s.top[0].token, s.token);
    EXPECT_EQ(s.top[0].logprob, s.logprob);
    EXPECT_LT(s.logprob, 0);
  }
}

TEST(GenerationDefaults, FollowTheFileAndHuggingFacesRuleForSampling) {
  const SamplingParams full = defaults_from({{"do_sample", true}, {"temperature", 0.6}, {"top_k", 20}, {"top_p", 0.95}, {"min_p", 0.05}, {"repetition_penalty", 1.1}});
  EXPECT_FLOAT_EQ(full.temperature, 0.6f);
  EXPECT_EQ(full.top_k, 20);
  EXPECT_FLOAT_EQ(full.top_p, 0.95f);
  EXPECT_FLOAT_EQ(full.min_p, 0.05f);
  EXPECT_FLOAT_EQ(full.repetition_penalty, 1.1f);
  EXPECT_EQ(defaults_from({{"do_sample", false}, {"temperature", 0.6}}).temperature, 0);
  EXPECT_EQ(defaults_from(Json::object()).temperature, 0);
  EXPECT_EQ(defaults_from({{"do_sample", true}}).temperature, 1);
  EXPECT_FLOAT_EQ(defaults_from({{"temperature", 0.7}, {"top_p", nullptr}}).temperature, 0.7f);
  EXPECT_THROW(defaults_from({{"do_sample", true}, {"top_p", "high"}}), Error);
  EXPECT_THROW(defaults_from({{"do_sample", true}, {"temperature", -1}}), Error);
}

}  // namespace
}  // namespace ridge
