// Whether the engine runs ahead or not, whoever asks sees the same: tokens, events, ends, errors, and what the prefix cache keeps.
#include "engine/run_ahead.h"

#include <set>
#include <utility>

#include "base/log.h"
#include "engine/test_devices.h"

namespace ridge {
namespace {

class RunAhead : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  EngineOptions options() const {
    EngineOptions o = exact();
    o.device = GetParam().first;
    o.isa = GetParam().second;
    o.n_threads = 1;
    return o;
  }
};

TEST_P(RunAhead, AnswersThatEndAtDifferentTimesForDifferentReasons) {
  const TinyModel model;
  std::mt19937 random(1);
  EngineOptions o = options();
  o.max_context = 90;
  o.page_size = 16;
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) requests.push_back(greedy(text_of(random, 1 + 7 * i), 1 + 4 * i));
  requests.push_back(greedy(text_of(random, 10), -1));                       // until the context is full
  Engine alone(model.checkpoint(), o);
  const Seen whole = serve(alone, at_once(requests));
  const auto answer_of = [&](size_t i) { return whole.tokens.at(uint64_t(i) + 1); };
  requests[4] = stopped(requests[4], answer_of(4), 7);
  requests[6] = stopped(requests[6], answer_of(6), 3);
  requests[8].params.ignore_eos = false;
  requests[8].params.stop_token_ids = {answer_of(8)[5], answer_of(8)[20]};
  requests[8].params.min_tokens = 9;
  requests[7].params.max_tokens = 0;
  for (const int max_seqs : {16, 3}) {
    o.max_seqs = max_seqs;
    const BothWays both = expect_the_same(model.checkpoint(), o, at_once(requests), fmt::format("{} at once", max_seqs));
    EXPECT_GT(both.ahead_stats.n_ahead, 20);
    EXPECT_EQ(both.ahead.finish.at(10), FinishReason::context);
    EXPECT_EQ(both.ahead.finish.at(5), FinishReason::stop);
    EXPECT_EQ(both.ahead.finish.at(9), FinishReason::stop);
    EXPECT_EQ(both.ahead.finish.at(8), FinishReason::length);
  }
}

TEST_P(RunAhead, AnEosTokenOfTheModelEndsAnAnswer) {
  std::mt19937 random(2);
  const Request request = greedy(text_of(random, 5), 30);
  const TinyModel endless;
  Engine alone(endless.checkpoint(), options());
  const std::vector<int32_t> answer = serve(alone, at_once({request})).tokens.at(1);
  const TinyModel model(Json{{"eos_token_id", answer.at(9)}});
  Request ends = request;
  ends.params.ignore_eos = false;
  const BothWays both = expect_the_same(model.checkpoint(), options(), at_once({ends, request}), "eos");
  EXPECT_EQ(both.ahead.finish.at(1), FinishReason::stop);
  EXPECT_EQ(both.ahead.finish.at(2), FinishReason::length);
  EXPECT_GE(both.ahead_stats.n_ahead, 28);
}

TEST_P(RunAhead, ArrivalsInTheMiddle) {
  const TinyModel model;
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(greedy(text_of(random, 20 + i), 25));
  EngineOptions o = options();
  for (const int max_batch_tokens : {512, 8}) {
    o.max_batch_tokens = max_batch_tokens;
    const BothWays both = expect_the_same(model.checkpoint(), o, [&](Engine& engine, int n_steps) {
      if (n_steps % 5 == 0 && n_steps / 5 < 6) engine.submit(requests[size_t(n_steps / 5)]);
    }, fmt::format("{} tokens a step", max_batch_tokens));
    EXPECT_GT(both.ahead_stats.n_ahead, 10);
  }
}

TEST_P(RunAhead, ACancelledRequestHasWhatItHadWhenItWasCancelled) {
  const TinyModel model;
  std::mt19937 random(4);
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(greedy(text_of(random, 10 + i), 20));
  for (const int n : {1, 2, 9})
    expect_the_same(model.checkpoint(), options(), [&](Engine& engine, int n_steps) {
      if (n_steps == 0) at_once(requests)(engine, 0);
      if (n_steps == n) engine.cancel(2);
      if (n_steps == n + 3) engine.cancel(1), engine.cancel(4);
    }, fmt::format("after {} steps", n));
  // The only one, and a next one at once: its slot and its pages are the first one's.
  expect_the_same(model.checkpoint(), options(), [&](Engine& engine, int n_steps) {
    if (n_steps == 0) engine.submit(requests[0]);
    if (n_steps == 6) engine.cancel(1), engine.submit(requests[1]);
  }, "followed by another");
}

TEST_P(RunAhead, WhoSamplesOrWantsProbabilitiesIsServedAsEver) {
  const TinyModel model;
  std::mt19937 random(5);
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(greedy(text_of(random, 12), 10 + 5 * i));
  requests[0].params.temperature = 0.8f, requests[0].params.seed = 5, requests[0].params.typical_p = 0.9f;
  requests[1].params.dry_multiplier = 0.8f;
  requests[2].n_prompt_logprobs = 1;
  BothWays both = expect_the_same(model.checkpoint(), options(), at_once(requests), "mixed");
  EXPECT_GT(both.ahead_stats.n_ahead, 0) << "those that are left are served ahead";
  requests[0].params.max_tokens = 40;
  both = expect_the_same(model.checkpoint(), options(), at_once({requests[0], requests[3], requests[4]}), "beside one that samples");
  EXPECT_EQ(both.ahead_stats.n_ahead, 0);
}

TEST_P(RunAhead, TokensDrawnFromTheLargestLogits) {
  const TinyModel model;
  std::mt19937 random(10);
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    SamplingParams& p = requests.emplace_back(greedy(text_of(random, 6 + i), 30 + i)).params;
    if (i == 11) break;                                // one that takes the largest
    p.temperature = 0.4f + 0.2f * float(i);
    p.top_k = 1 + 7 * i;
    p.top_p = i % 2 ? 1.0f : 0.7f;
    p.min_p = i % 3 ? 0.0f : 0.05f;
    p.seed = 100 + uint64_t(i);
    if (i == 5) p.min_tokens = 4, p.stop_token_ids = {20, 40, 60};
  }
  const BothWays both = expect_the_same(model.checkpoint(), options(), at_once(requests), "drawn");
  EXPECT_GT(both.ahead_stats.n_ahead, 30);
  EXPECT_EQ(both.ahead_stats.n_left_open, 0) << "what top-k cuts is decided by what is left";
  requests[3].params.dry_multiplier = 0.5f;            // what the device does not know of
  requests[3].params.max_tokens = 60;
  EXPECT_EQ(expect_the_same(model.checkpoint(), options(), at_once({requests[3], requests[4]}), "with DRY").ahead_stats.n_ahead, 0);
}

// By temperature alone, as most clients ask; by min-p; by top-p, which the largest of a flat row do not always decide; by a top-k that cuts nothing.
TEST_P(RunAhead, TokensDrawnFromAllLogits) {
  const TinyModel model;
  std::mt19937 random(12);
  std::vector<Request> requests;
  for (int i = 0; i < 16; ++i) {
    SamplingParams& p = requests.emplace_back(greedy(text_of(random, 6 + i), 30 + i)).params;
    p.temperature = 0.3f + 0.2f * float(i);
    if (i % 4 == 1) p.min_p = 0.02f;
    if (i % 4 >= 2) p.top_p = 0.6f + 0.02f * float(i);
    if (i % 4 == 3) p.min_p = 0.001f;
    if (i == 8) p.top_k = TinyModel::kVocab;
    p.seed = 200 + uint64_t(i);
    penalise(p, size_t(i % 8));
  }
  const BothWays both = expect_the_same(model.checkpoint(), options(), at_once(requests), "drawn");
  EXPECT_GT(both.ahead_stats.n_ahead, 30);
  for (const size_t i : {0u, 4u, 9u}) {
    const BothWays alone = expect_the_same(model.checkpoint(), options(), at_once({requests[i]}), fmt::format("request {} alone", i));
    EXPECT_EQ(alone.ahead.tokens.at(1), both.ahead.tokens.at(i + 1)) << "request " << i;
    EXPECT_GE(alone.ahead_stats.n_ahead, requests[i].params.max_tokens - 2) << "request " << i;
    EXPECT_EQ(alone.ahead_stats.n_left_open, 0);
  }
}

// The logprobs of tokens that the device chose, and of the prompt's, without a look at a row.
TEST_P(RunAhead, LogprobsOfWhatTheDeviceChose) {
  const TinyModel model;
  std::mt19937 random(14);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    Request& request = requests.emplace_back(greedy(text_of(random, 5 + 3 * i), 20 + i));
    request.params.n_logprobs = i == 7 ? 200 : i % 4 - 1;          // 200: more than there are tokens
    if (i % 2) request.params.temperature = 0.9f, request.params.seed = uint64_t(i);
    if (i % 3 == 0) request.n_prompt_logprobs = i;
    penalise(request.params, size_t(i));
  }
  EngineOptions o = options();
  for (const int max_batch_tokens : {512, 9}) {                    // prompts whole and in pieces
    o.max_batch_tokens = max_batch_tokens;
    const BothWays both = expect_the_same(model.checkpoint(), o, at_once({requests.begin(), requests.begin() + 7}), fmt::format("{} tokens a step", max_batch_tokens));
    EXPECT_GT(both.ahead_stats.n_ahead, 15);
  }
  EXPECT_GT(expect_the_same(model.checkpoint(), options(), at_once({requests[2]}), "alone").ahead_stats.n_ahead, 15);
  EXPECT_EQ(expect_the_same(model.checkpoint(), options(), at_once({requests[7]}), "more than there are").ahead_stats.n_ahead, 0);
}

// Masks come when the step is under way; those who have none run ahead once they are alone.
TEST_P(RunAhead, TokensAmongThoseThatMasksAllow) {
  const TinyModel model;
  const auto requests = [](bool banned) {
    std::mt19937 random(15);
    std::vector<Request> made;
    for (int i = 0; i < 10; ++i) {
      Request& request = made.emplace_back(greedy(text_of(random, 5 + 3 * i), i == 9 ? 45 : 18 + i));
      SamplingParams& p = request.params;
      if (i % 2) p.temperature = 0.9f, p.seed = uint64_t(i);
      if (i % 3 == 2) p.top_k = 30;
      if (i == 4) p.n_logprobs = 2;
      penalise(p, size_t(i));
      if (i < 6 && !banned) request.filter = std::make_shared<Multiples>(1 + i, i == 5 ? 0 : 1 + i % 2, 12 + i);      // the sixth fails with its second token
      if (i >= 6 || banned) p.min_tokens = 10 + i, p.stop_token_ids = {10, 20, 30, 40, 50, 60}, p.ignore_eos = false;
      if (i == 8 && !banned) request.filter = std::make_shared<Multiples>(2, 3, 4), p.max_tokens = p.min_tokens = 0;
    }
    return made;
  };
  for (const auto& [banned, max_batch_tokens] : {std::pair{false, 512}, {false, 11}, {true, 512}, {true, 11}}) {      // 11: prompts in pieces, some of which choose nothing
    EngineOptions o = options();
    o.max_batch_tokens = max_batch_tokens;
    const BothWays both = expect_the_same(model.checkpoint(), o, [&](Engine& engine, int n_steps) {
      if (n_steps == 0) at_once(requests(banned))(engine, 0);
    }, fmt::format("{}, {} tokens a step", banned ? "banned" : "masked", max_batch_tokens));
    EXPECT_GT(both.ahead_stats.n_ahead, 10);
    EXPECT_EQ(both.ahead_stats.n_left_open, banned ? 0 : 1) << "the filter that fails";
    if (!banned) {
      EXPECT_EQ(both.ahead.finish.at(6), FinishReason::error);
      EXPECT_EQ(both.ahead.tokens.at(5).size(), 16u);
    }
  }
}

// What the device leaves open is drawn by the host, and nobody sees a difference.
TEST_P(RunAhead, DrawsThatAreLeftOpen) {
  const TinyModel model(Json{{"vocab_size", 4000}});
  std::mt19937 random(13);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    SamplingParams& p = requests.emplace_back(greedy(text_of(random, 5 + i, 4000), 25)).params;
    p.temperature = 1.5f, p.top_p = i % 2 ? 0.5f : 0.9f, p.seed = uint64_t(i);
  }
  const BothWays both = expect_the_same(model.checkpoint(), options(), at_once(requests), "open");
  EXPECT_GT(both.ahead_stats.n_left_open, 5);
  EXPECT_GT(both.ahead_stats.n_ahead, 5);
}

TEST_P(RunAhead, PenaltiesOnTheDeviceThatChooses) {
  const TinyModel model;
  std::mt19937 random(11);
  const std::vector<Request> requests = with_penalties(random, TinyModel::kVocab);
  const BothWays both = expect_the_same(model.checkpoint(), options(), at_once(requests), "all of them");
  EXPECT_GT(both.ahead_stats.n_ahead, 30);
  for (size_t i = 0; i < requests.size(); ++i) {
    const BothWays alone = expect_the_same(model.checkpoint(), options(), at_once({requests[i]}), fmt::format("request {} alone", i));
    EXPECT_GE(alone.ahead_stats.n_ahead, requests[i].params.max_tokens - 2) << "request " << i;
    EXPECT_EQ(alone.ahead.tokens.at(1), both.ahead.tokens.at(i + 1)) << "request " << i;
    Request without = requests[i];
    without.params.repetition_penalty = 1.0f, without.params.presence_penalty = without.params.frequency_penalty = 0.0f, without.params.logit_bias.clear();
    Engine engine(model.checkpoint(), options());
    EXPECT_EQ(serve(engine, at_once({without})).tokens.at(1) != alone.ahead.tokens.at(1), requests[i].params.changes_logits()) << "request " << i;
  }
}

TEST_P(RunAhead, WhoBansAllTokensFailsAlone) {
  const TinyModel model;
  std::mt19937 random(4);
  std::vector<Request> requests = {greedy(text_of(random, 9), 20), greedy(text_of(random, 9), 20), greedy(text_of(random, 7), 20)};
  for (int token = 0; token < TinyModel::kVocab; ++token)
    for (const size_t i : {0, 2}) requests[i].params.logit_bias[token] = -INFINITY;
  requests[2].params.temperature = 1.0f;
  const BothWays both = expect_the_same(model.checkpoint(), options(), at_once(requests), "all banned");
  EXPECT_EQ(both.ahead.finish.at(1), FinishReason::error);
  EXPECT_EQ(both.ahead.finish.at(2), FinishReason::length);
  EXPECT_EQ(both.ahead.finish.at(3), FinishReason::error);
}

TEST_P(RunAhead, WhatIsKeptOfAnswersServesTheNextTurn) {
  const TinyModel model;
  EngineOptions o = options();
  o.prefix_cache = true;
  o.page_size = 16;
  std::mt19937 random(6);
  std::vector<Request> requests;
  // Ends in all places of a page, found out too late.
  for (int i = 0; i < 18; ++i) requests.push_back(greedy(text_of(random, 20), 40));
  EngineOptions plain = o;
  plain.run_ahead = false;
  Engine alone(model.checkpoint(), plain);
  const Seen whole = serve(alone, at_once(requests));
  std::vector<Request> next;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int32_t>& answer = whole.tokens.at(i + 1);
    const size_t n = std::find(answer.begin(), answer.end(), answer[i + 8]) - answer.begin() + 1;
    requests[i] = stopped(requests[i], answer, n);
    next.push_back(greedy(requests[i].prompt, 12));
    next.back().prompt.insert(next.back().prompt.end(), answer.begin(), answer.begin() + int(n) + 3);      // beyond its end: what was thrown away must not be found
  }
  bool is_second = false;
  const BothWays both = expect_the_same(model.checkpoint(), o, [&](Engine& engine, int n_steps) {
    if (n_steps == 0) is_second = false;
    if (n_steps == 0) at_once(requests)(engine, 0);
    else if (engine.idle() && !std::exchange(is_second, true)) at_once(next)(engine, 0);
  }, "two turns");
  EXPECT_GT(both.ahead_stats.n_ahead, 20);
  for (size_t i = 0; i < next.size(); ++i) {
    EXPECT_GE(both.ahead.n_cached.at(requests.size() + i + 1), 16);
    EXPECT_LE(both.ahead.n_cached.at(requests.size() + i + 1), int(requests[i].prompt.size() + both.ahead.tokens.at(i + 1).size()) - 1);
  }
}

TEST_P(RunAhead, AChangeOfRotaryAngles) {
  set_log_level(LogLevel::error);
  const TinyModel model({{"max_position_embeddings", 32}, {"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}, {"rope_theta", 10000.0}}}});
  std::mt19937 random(7);
  for (const bool every_token : {true, false}) {
    EngineOptions o = options();
    o.rope_dynamic_exact = every_token;
    o.max_context = 120;
    const BothWays both = expect_the_same(model.checkpoint(), o, at_once({greedy(text_of(random, 20), 60), greedy(text_of(random, 33), 50)}), every_token ? "with every token" : "at powers of two");
    EXPECT_EQ(both.ahead_stats.n_ahead > 30, !every_token);
  }
  set_log_level(LogLevel::info);
}

TEST_P(RunAhead, LogitsThatAreNoNumbersEndTheirSequenceInTheSameWords) {
  set_log_level(LogLevel::error);
  const TinyModel model(Json::object(), NAN);          // token 7 is poison
  std::mt19937 random(8);
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(greedy(text_of(random, 4), 50));
  for (Request& request : requests) std::replace(request.prompt.begin(), request.prompt.end(), 7, 8);
  requests[3].prompt[2] = 7;
  const BothWays both = expect_the_same(model.checkpoint(), options(), at_once(requests), "poison");
  int n_failed = 0;
  for (const auto& [id, finish] : both.ahead.finish) n_failed += finish == FinishReason::error && both.ahead.tokens.contains(id) && both.ahead.tokens.at(id).size() > 3;
  EXPECT_GT(n_failed, 0) << "nobody met the poison in an answer";
  EXPECT_GT(both.ahead_stats.n_ahead, 10);
  set_log_level(LogLevel::info);
}

// Whatever comes between steps: a request gives what it gives alone.
TEST_P(RunAhead, AnythingMayHappenBetweenSteps) {
  for (const Json& changes : {Json::object(), Json{{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}, {"sliding_window", 40}}}) {
    const TinyModel model(changes);
    for (uint32_t seed = 0; seed < 6; ++seed) {
      std::mt19937 random(seed);
      EngineOptions o = options();
      o.max_context = 160;
      o.page_size = 16 << seed % 2;
      o.prefix_cache = seed % 3 > 0;
      o.max_seqs = 2 + int(seed);
      if (seed % 2) o.kv_bytes = 400 * 3 * 2 * 32 * 4;            // for two or three: the scheduler preempts
      if (seed == 5) o.swap_bytes = 1 << 20;
      std::vector<Request> requests;
      for (int i = 0; i < 14; ++i) requests.push_back(greedy(text_of(random, 1 + int(random() % 60)), 1 + int(random() % 60)));
      for (size_t i = 0; i < 14; i += 2) penalise(requests[i].params, i / 2);
      for (int i = 4; i < 8; ++i) requests[size_t(i)].prompt = requests[size_t(i - 4)].prompt, requests[size_t(i)].prompt.push_back(9);
      Engine alone(model.checkpoint(), options());
      std::vector<std::vector<int32_t>> expected;
      for (size_t i = 0; i < requests.size(); ++i) {
        const uint64_t id = alone.submit(requests[i]);
        expected.push_back(serve(alone, [](Engine&, int) {}).tokens.at(id));
        if (i % 3 == 1) {
          std::vector<int32_t>& answer = expected.back();
          requests[i] = stopped(requests[i], answer, 1 + answer.size() / 2);
          answer.resize(std::find(answer.begin(), answer.end(), requests[i].params.stop_token_ids[0]) - answer.begin() + 1);
        }
      }
      o.run_ahead = true;
      Engine engine(model.checkpoint(), o);
      size_t n_asked = 0;
      std::set<uint64_t> cancelled;
      const Seen seen = serve(engine, [&](Engine& e, int) {
        do {
          while (n_asked < requests.size() && random() % 8 == 0) e.submit(requests[n_asked++]);
        } while (e.idle() && n_asked < requests.size());
        const uint64_t anyone = n_asked > 0 ? 1 + random() % n_asked : 0;
        if (anyone && random() % 20 == 0) e.preempt(anyone);
        if (anyone && random() % 60 == 0) e.cancel(anyone), cancelled.insert(anyone);
        if (random() % 30 == 0) e.flush_cache();
      });
      for (size_t i = 0; i < requests.size(); ++i) {
        const uint64_t id = i + 1;
        std::vector<int32_t> got = seen.tokens.contains(id) ? seen.tokens.at(id) : std::vector<int32_t>{}, wanted = expected[i];
        if (seen.finish.at(id) == FinishReason::cancelled) {
          EXPECT_TRUE(cancelled.contains(id));
          ASSERT_LE(got.size(), wanted.size());
          wanted.resize(got.size());
        }
        EXPECT_EQ(got, wanted) << "request " << id << ", seed " << seed;
      }
      EXPECT_GT(engine.stats().n_ahead, 5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RunAhead, testing::ValuesIn(test_devices()), [](const auto& info) {
  return info.param.first + (info.param.second.empty() ? "" : "_" + info.param.second);
});

TEST(RunAheadDefault, IsForDevicesThatWorkWhileTheHostDoesOtherThings) {
  const TinyModel model;
  EngineOptions o = exact();
  Engine engine(model.checkpoint(), o);
  serve(engine, at_once({greedy({3, 4, 5}, 20)}));
  EXPECT_EQ(engine.stats().n_ahead, 0) << "on the host it would only make every token wait for the next one";
}

}  // namespace
}  // namespace ridge
