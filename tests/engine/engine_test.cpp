// The engine with a tiny random model: the same request gives the same tokens whatever else happens, and every way to end does what it says.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "engine/device.h"
#include "engine/test_devices.h"
#include "engine/tiny_model.h"

namespace ridge {
namespace {

std::vector<int32_t> random_prompt(std::mt19937& random, int n) {
  std::vector<int32_t> prompt(n);
  for (int32_t& t : prompt) t = int32_t(3 + random() % (TinyModel::kVocab - 3));
  return prompt;
}

struct Outcome {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::none;
  std::string error;
};

std::map<uint64_t, Outcome> run_until_idle(Engine& engine, const std::function<void()>& between_steps = {}) {
  std::map<uint64_t, Outcome> outcomes;
  for (int n_steps = 0; !engine.idle(); ++n_steps) {
    if (n_steps > 100'000) {
      ADD_FAILURE() << "the engine never became idle";
      break;
    }
    for (const Event& event : engine.step()) {
      Outcome& o = outcomes[event.id];
      EXPECT_EQ(o.finish, FinishReason::none) << "an event after the last one";
      for (const Sampled& s : event.sampled) o.tokens.push_back(s.token);
      o.finish = event.finish;
      o.error = event.error;
    }
    engine.check_integrity();
    if (between_steps) between_steps();
  }
  for (int g = 0; g < engine.kv().n_groups(); ++g) EXPECT_EQ(engine.kv().n_free_pages(g), engine.kv().n_pages(g)) << "pages are missing after everything ended";
  return outcomes;
}

Request greedy_request(std::vector<int32_t> prompt, int max_tokens) {
  Request request{.prompt = std::move(prompt)};
  request.params.temperature = 0;
  request.params.ignore_eos = true;
  request.params.max_tokens = max_tokens;
  return request;
}

EngineOptions exact(const std::string& device = "ref", const std::string& isa = "") {
  EngineOptions options{.device = device, .isa = isa};
  options.activations = FormatId::f32;
  options.max_context = 256;
  return options;
}

// Requests of many shapes: greedy and sampled, short and long, with penalties.
std::vector<Request> mixed_requests(int n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < n; ++i) {
    Request request = greedy_request(random_prompt(random, 1 + int(random() % 90)), 1 + int(random() % 25));
    if (i % 2) {
      request.params.temperature = 0.9f;
      request.params.top_p = i % 4 == 1 ? 0.8f : 1.0f;
      request.params.top_k = i % 3 ? 0 : 10;
      request.params.repetition_penalty = 1.1f;
      request.params.seed = 1000 + i;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::vector<int32_t>> alone(const TinyModel& model, const EngineOptions& options, const std::vector<Request>& requests) {
  Engine engine(model.checkpoint(), options);
  std::vector<std::vector<int32_t>> answers;
  for (const Request& request : requests) {
    const uint64_t id = engine.submit(request);
    answers.push_back(run_until_idle(engine)[id].tokens);
  }
  return answers;
}

class EveryDevice : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  EngineOptions options() const { return exact(GetParam().first, GetParam().second); }
};

TEST_P(EveryDevice, TheSameRequestGivesTheSameTokensInAnyBatchChunkingPageSizeAndAfterPreemption) {
  for (const Json& changes : {Json::object(), Json{{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}, {"sliding_window", 40}}}) {
    const TinyModel model(changes);
    const std::vector<Request> requests = mixed_requests(8, 5);
    const auto expected = alone(model, options(), requests);
    std::mt19937 random(9);
    int64_t n_preemptions = 0;
    for (int round = 0; round < 6; ++round) {
      EngineOptions o = options();
      o.page_size = 16 << round % 3;
      o.max_batch_tokens = std::vector{512, 7, 64, 1, 33, 16}[round];
      o.max_seqs = std::vector{16, 3, 8, 2, 16, 5}[round];
      o.max_context = 160;
      // Odd rounds: KV for about two sequences, so that the scheduler preempts by itself. Even ones: we do.
      const bool scarce = round % 2 == 1;
      if (scarce) o.kv_bytes = 400 * 3 * 2 * 32 * 4;
      Engine engine(model.checkpoint(), o);
      std::vector<uint64_t> ids;
      size_t next = 0;
      std::map<uint64_t, Outcome> outcomes;
      const auto submit_some = [&] {
        while (next < requests.size() && random() % 3) ids.push_back(engine.submit(requests[next++]));
        if (!scarce && !ids.empty() && random() % 5 == 0) engine.preempt(ids[random() % ids.size()]);
      };
      while (next < requests.size()) {
        submit_some();
        if (engine.idle()) continue;
        for (auto& [id, o2] : run_until_idle(engine, submit_some)) outcomes[id] = o2;
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(outcomes[ids[i]].tokens, expected[i]) << "request " << i << " round " << round;
        EXPECT_EQ(outcomes[ids[i]].finish, FinishReason::length);
      }
      n_preemptions += engine.stats().n_preemptions;
    }
    EXPECT_GT(n_preemptions, 5) << "the test no longer reaches preemption";
  }
}

TEST_P(EveryDevice, TheNumberOfThreadsChangesNothing) {
  const TinyModel model;
  const std::vector<Request> requests = mixed_requests(4, 6);
  std::vector<std::vector<int32_t>> first;
  for (const int n_threads : {1, 2, 3}) {
    EngineOptions o = options();
    o.n_threads = n_threads;
    const auto answers = alone(model, o, requests);
    if (first.empty()) first = answers;
    EXPECT_EQ(answers, first) << n_threads << " threads";
  }
}

TEST_P(EveryDevice, AChangeOfRotaryAnglesRecomputesTheSequence) {
  set_log_level(LogLevel::error);
  const TinyModel model({{"max_position_embeddings", 32}, {"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}, {"rope_theta", 10000.0}}}});
  std::mt19937 random(3);
  const std::vector<int32_t> prompt = random_prompt(random, 20);
  for (const bool every_token : {true, false}) {
    EngineOptions o = options();
    o.rope_dynamic_exact = every_token;
    o.max_context = 120;
    Engine engine(model.checkpoint(), o);
    const uint64_t id = engine.submit(greedy_request(prompt, 60));
    const std::vector<int32_t> tokens = run_until_idle(engine)[id].tokens;
    if (every_token) EXPECT_EQ(engine.stats().n_rope_restarts, 20 + 59 - 32);      // the last token is never computed
    else EXPECT_EQ(engine.stats().n_rope_restarts, 2);                             // past 32 and past 64
    // Whole sequences give the same next token: what was computed with old angles left no trace.
    for (const int n : {12, 13, 14, 44, 45, 46, 59}) {
      std::vector<int32_t> longer = prompt;
      longer.insert(longer.end(), tokens.begin(), tokens.begin() + n);
      const uint64_t again = engine.submit(greedy_request(longer, 1));
      EXPECT_EQ(run_until_idle(engine)[again].tokens.front(), tokens[n]) << n;
    }
  }
  set_log_level(LogLevel::info);
}

TEST_P(EveryDevice, LogitsThatAreNoNumbersEndTheirSequenceAndNoOther) {
  const TinyModel model(Json::object(), NAN);
  const TinyModel healthy;
  EngineOptions o = options();
  Engine engine(model.checkpoint(), o);
  const uint64_t good = engine.submit(greedy_request({3, 4, 5}, 1)), bad = engine.submit(greedy_request({3, 7, 5}, 5));
  auto outcomes = run_until_idle(engine);
  EXPECT_EQ(outcomes[bad].finish, FinishReason::error);
  EXPECT_NE(outcomes[bad].error.find("request " + std::to_string(bad)), std::string::npos) << outcomes[bad].error;
  EXPECT_EQ(outcomes[good].finish, FinishReason::length);
  EXPECT_EQ(outcomes[good].tokens, alone(healthy, o, {greedy_request({3, 4, 5}, 1)})[0]);
  // The bad numbers are still in the pages it had; whoever gets them next must not meet them behind the end of its own.
  const std::vector<Request> next = {greedy_request({9, 10, 11, 12, 13}, 2), greedy_request({14}, 1), greedy_request({15, 16}, 1)};
  const auto expected = alone(healthy, o, next);
  std::vector<uint64_t> ids;
  for (const Request& request : next) ids.push_back(engine.submit(request));
  outcomes = run_until_idle(engine);
  for (size_t i = 0; i < next.size(); ++i) {
    // Token 7 itself poisons whoever generates it; these do not.
    ASSERT_EQ(std::count(expected[i].begin(), expected[i].end(), 7), 0);
    EXPECT_EQ(outcomes[ids[i]].tokens, expected[i]) << outcomes[ids[i]].error;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EveryDevice, testing::ValuesIn(test_devices()), [](const auto& info) {
  return info.param.first + (info.param.second.empty() ? "" : "_" + info.param.second);
});

TEST(Engine, CancelEndsAWaitingAndARunningSequenceAndLeavesTheOthersAlone) {
  const TinyModel model;
  EngineOptions o = exact();
  o.max_seqs = 2;
  const std::vector<Request> requests = {greedy_request({5, 6}, 30), greedy_request({7, 8}, 30), greedy_request({9}, 30), greedy_request({10}, 30)};
  const auto expected = alone(model, o, requests);
  Engine engine(model.checkpoint(), o);
  std::vector<uint64_t> ids;
  for (const Request& request : requests) ids.push_back(engine.submit(request));
  int n = 0;
  auto outcomes = run_until_idle(engine, [&] {
    if (++n == 5) engine.cancel(ids[1]), engine.cancel(ids[2]);
    if (n == 6) engine.cancel(ids[1]), engine.cancel(12345);
  });
  EXPECT_EQ(outcomes[ids[1]].finish, FinishReason::cancelled);
  EXPECT_EQ(outcomes[ids[1]].tokens.size(), 5u);
  EXPECT_EQ(outcomes[ids[2]].finish, FinishReason::cancelled);
  EXPECT_TRUE(outcomes[ids[2]].tokens.empty());
  EXPECT_EQ(outcomes[ids[0]].tokens, expected[0]);
  EXPECT_EQ(outcomes[ids[3]].tokens, expected[3]);
}

TEST(Engine, AFullContextEndsTheAnswerAtExactlyThatLength) {
  const TinyModel model;
  EngineOptions o = exact();
  o.max_context = 50;
  Engine engine(model.checkpoint(), o);
  const uint64_t id = engine.submit(greedy_request(std::vector<int32_t>(10, 5), -1));
  const Outcome outcome = run_until_idle(engine)[id];
  EXPECT_EQ(outcome.finish, FinishReason::context);
  EXPECT_EQ(outcome.tokens.size(), 40u);
}

TEST(Engine, WhatCanNeverRunIsRefusedWithAReason) {
  const TinyModel model;
  EngineOptions o = exact();
  o.max_context = 50;
  Engine engine(model.checkpoint(), o);
  const auto refused = [&](Request request, const std::string& reason) {
    try {
      engine.submit(std::move(request));
      ADD_FAILURE() << "accepted: " << reason;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
    }
  };
  refused(greedy_request({}, 1), "no tokens");
  refused(greedy_request({3, 96}, 1), "token 96");
  refused(greedy_request({-1}, 1), "token -1");
  refused(greedy_request(std::vector<int32_t>(50, 3), 1), "context holds 50");
  Request biased = greedy_request({3}, 1);
  biased.params.logit_bias = {{4000, 1.0f}};
  refused(biased, "4000");
  Request hot = greedy_request({3}, 1);
  hot.params.temperature = -2;
  refused(hot, "temperature");
  EXPECT_TRUE(engine.idle());
  EXPECT_NO_THROW(engine.submit(greedy_request(std::vector<int32_t>(49, 3), 1)));
}

TEST(Engine, UnknownDevicesAndFormatsAreRefusedWithWhatExists) {
  const TinyModel model;
  const auto refused = [&](EngineOptions options, const std::string& reason) {
    try {
      Engine engine(model.checkpoint(), options);
      ADD_FAILURE() << "accepted: " << reason;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
    }
  };
  refused({.device = "tpu"}, "cpu, ref");
  refused({.device = "ref", .isa = "avx2"}, "ISA");
  EngineOptions o = exact();
  o.kv_format = FormatId::q4_0;
  refused(o, "f32, f16, bf16 or fp8_e4m3");
  o = exact();
  o.activations = FormatId::f16;
  refused(o, "i8, i16 or f32");
  o = exact();
  o.page_size = 48;
  refused(o, "16, 32 or 64");
  o = exact();
  o.kv_bytes = 100;
  refused(o, "too little");
  o = exact();
  o.kv_bytes = 128 * 3 * 2 * 32 * 4;
  refused(o, "128 would fit");
}

TEST(Engine, StopIdsAndEosEndAnAnswerButNotBeforeMinTokens) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  const std::vector<int32_t> free_run = alone(model, exact(), {greedy_request({5, 6, 7}, 30)})[0];
  Request request = greedy_request({5, 6, 7}, 30);
  request.params.stop_token_ids = {free_run[4]};
  const size_t first = size_t(std::find(free_run.begin(), free_run.end(), free_run[4]) - free_run.begin());
  uint64_t id = engine.submit(request);
  Outcome outcome = run_until_idle(engine)[id];
  EXPECT_EQ(outcome.finish, FinishReason::stop);
  EXPECT_EQ(outcome.tokens, std::vector<int32_t>(free_run.begin(), free_run.begin() + first + 1));

  request.params.min_tokens = 20;
  id = engine.submit(request);
  outcome = run_until_idle(engine)[id];
  for (int i = 0; i < 20; ++i) EXPECT_NE(outcome.tokens[i], free_run[4]);

  Request ends = greedy_request({5, 6, 7}, 30);
  ends.params.ignore_eos = false;
  ends.params.logit_bias = {{2, 100.0f}};
  id = engine.submit(ends);
  outcome = run_until_idle(engine)[id];
  EXPECT_EQ(outcome.finish, FinishReason::stop);
  EXPECT_EQ(outcome.tokens, std::vector<int32_t>{2});
}

TEST(Engine, AllLogitsOfAScoredPromptArriveOnceEachAndNothingIsGenerated) {
  const TinyModel model;
  EngineOptions o = exact();
  o.max_batch_tokens = 16;
  o.max_logits = 5;
  Engine engine(model.checkpoint(), o);
  std::map<std::pair<uint64_t, int>, int> n_rows;
  engine.set_logits_sink([&](uint64_t id, int position, std::span<const float> row) {
    EXPECT_EQ(row.size(), size_t(TinyModel::kVocab));
    n_rows[{id, position}]++;
  });
  Request request{.prompt = std::vector<int32_t>(30, 4), .wants_all_logits = true};
  request.params.max_tokens = 0;
  const uint64_t a = engine.submit(request), b = engine.submit(greedy_request({3, 4}, 3)), c = engine.submit(request);
  auto outcomes = run_until_idle(engine);
  EXPECT_EQ(outcomes[a].finish, FinishReason::length);
  EXPECT_TRUE(outcomes[a].tokens.empty());
  EXPECT_EQ(outcomes[b].tokens.size(), 3u);
  EXPECT_EQ(n_rows.size(), 60u);
  for (const auto& [key, n] : n_rows) EXPECT_TRUE(n == 1 && (key.first == a || key.first == c));
}

TEST(Engine, TheLedgerCountsTheWeightsOfEveryStep) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  engine.submit(greedy_request({3, 4, 5}, 10));
  run_until_idle(engine);
  EXPECT_EQ(engine.ledger().n_steps(), 10);
  EXPECT_EQ(engine.stats().n_steps, 10);
  EXPECT_EQ(engine.stats().n_prefill_tokens, 3);
  EXPECT_EQ(engine.stats().n_decode_tokens, 9);
  EXPECT_GE(engine.ledger().entries().at("matmul").traffic.weight_bytes, 10 * 3 * 4 * (64 * 64 * 2 + 64 * 32 * 2 + 64 * 96 * 3));
}

}  // namespace
}  // namespace ridge
