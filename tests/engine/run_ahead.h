// A story told to two engines, one of which runs ahead: whoever asks sees the same.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/exact_requests.h"
#include "engine/multiples.h"
#include "engine/tiny_model.h"

namespace ridge {

inline std::vector<int32_t> text_of(std::mt19937& random, int n, int n_vocab = TinyModel::kVocab) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = int32_t(3 + random() % uint32_t(n_vocab - 3));
  return tokens;
}

// What whoever asks sees of a request: its events, in order.
using Events = std::vector<std::string>;
struct Seen {
  std::map<uint64_t, Events> events;
  std::map<uint64_t, std::vector<int32_t>> tokens;
  std::map<uint64_t, std::vector<float>> logprobs;
  std::map<uint64_t, FinishReason> finish;
  std::map<uint64_t, int> n_cached;
};

using Between = std::function<void(Engine&, int n_steps)>;      // called before each step and, once nothing is left to do, until it gives nothing to do

inline Seen serve(Engine& engine, const Between& between) {
  Seen seen;
  int n_steps = 0;
  for (between(engine, 0); !engine.idle() && n_steps < 5000; between(engine, n_steps)) {
    for (const Event& event : engine.step()) {
      std::string line = fmt::format("{} generated, finish {}, stop {}, error '{}':", event.timing.n_generated, int(event.finish), event.stop_token, event.error);
      const auto tell = [&](const Sampled& s) {
        line += fmt::format(" {}", s.token);
        seen.logprobs[event.id].push_back(s.logprob);
        for (const TokenLogprob& t : s.top) line += fmt::format(" ({})", t.token), seen.logprobs[event.id].push_back(t.logprob);
      };
      for (const Sampled& s : event.sampled) tell(s), seen.tokens[event.id].push_back(s.token);
      if (!event.prompt_logprobs.empty()) line += " prompt:";
      for (const Sampled& s : event.prompt_logprobs) tell(s);
      seen.events[event.id].push_back(std::move(line));
      seen.finish[event.id] = event.finish;
      seen.n_cached[event.id] = event.timing.n_cached;
    }
    engine.check_integrity();
    n_steps++;
  }
  EXPECT_TRUE(engine.idle());
  return seen;
}

inline Between at_once(std::vector<Request> requests) {
  return [requests = std::move(requests)](Engine& engine, int n_steps) {
    if (n_steps == 0)
      for (const Request& request : requests) engine.submit(request);
  };
}

struct BothWays { Seen plain, ahead; EngineStats plain_stats, ahead_stats; };

// The story twice, with all that lasts longer than a request compared too.
inline BothWays expect_the_same(const Checkpoint& checkpoint, EngineOptions options, const Between& between, const std::string& what) {
  BothWays both;
  PrefixReport reports[2];
  for (const bool ahead : {false, true}) {
    options.run_ahead = ahead;
    Engine engine(checkpoint, options);
    (ahead ? both.ahead : both.plain) = serve(engine, between);
    (ahead ? both.ahead_stats : both.plain_stats) = engine.stats();
    reports[ahead] = engine.cache_report();
  }
  EXPECT_EQ(both.ahead.events, both.plain.events) << what;
  for (const auto& [id, logprobs] : both.plain.logprobs) {        // summed in another order, perhaps
    EXPECT_EQ(both.ahead.logprobs[id].size(), logprobs.size()) << what;
    for (size_t i = 0; i < std::min(logprobs.size(), both.ahead.logprobs[id].size()); ++i) EXPECT_NEAR(both.ahead.logprobs[id][i], logprobs[i], 1e-5) << what << ", request " << id;
  }
  EXPECT_EQ(both.ahead.n_cached, both.plain.n_cached) << what;
  EXPECT_EQ(reports[1].n_nodes, reports[0].n_nodes) << what;
  EXPECT_EQ(reports[1].n_tokens, reports[0].n_tokens) << what;
  EXPECT_EQ(both.ahead_stats.n_rope_restarts, both.plain_stats.n_rope_restarts) << what;
  EXPECT_EQ(both.ahead_stats.n_decode_tokens, both.plain_stats.n_decode_tokens) << what;
  EXPECT_EQ(both.ahead_stats.n_prefill_tokens, both.plain_stats.n_prefill_tokens) << what;
  EXPECT_EQ(both.plain_stats.n_ahead, 0) << what;
  return both;
}

// Each penalty, all together, over a few tokens, and such that raise logits; 0 and from 6 on: none.
inline void penalise(SamplingParams& p, size_t which) {
  if (which == 1 || which == 4 || which == 5) p.repetition_penalty = 1.4f;
  if (which == 2 || which == 4) p.presence_penalty = 0.9f;
  if (which == 3 || which == 4) p.frequency_penalty = 1.2f;
  if (which == 5) p.penalty_last_n = 5, p.presence_penalty = -0.4f;
}

// Some tokens likelier, some less so, some not at all.
inline void bias(SamplingParams& p, int n_vocab) {
  for (int token = 0; token < n_vocab; token += 3) p.logit_bias[token] = token % 2 ? 2.5f : token % 4 ? -1.0f : -INFINITY;
}

// Requests with and without penalties and biases, greedy and sampled.
inline std::vector<Request> with_penalties(std::mt19937& random, int n_vocab) {
  std::vector<Request> requests;
  for (size_t i = 0; i < 12; ++i) {
    SamplingParams& p = requests.emplace_back(greedy(text_of(random, 3 + 4 * int(i), n_vocab), 36 + int(i))).params;
    penalise(p, i / 2);
    if (i == 0 || i == 5 || i == 8) bias(p, n_vocab);
    if (i % 2) p.temperature = 0.7f, p.top_k = 50, p.top_p = 0.95f, p.seed = i;
  }
  return requests;
}

// Requests that are drawn in every way that a device knows, with scores, masks and penalties; none of them answers twice, for filters remember.
inline std::vector<Request> with_draws(int n_vocab, bool with_masks) {
  std::mt19937 random(16);
  std::vector<Request> requests;
  for (size_t i = 0; i < 12; ++i) {
    Request& request = requests.emplace_back(greedy(text_of(random, 4 + 3 * int(i), n_vocab), 30 + int(i)));
    SamplingParams& p = request.params;
    p.temperature = i == 11 ? 0.0f : 0.4f + 0.1f * float(i), p.seed = i;
    if (i % 4 == 1) p.min_p = 0.03f;
    if (i % 4 == 2) p.top_p = 0.8f;
    if (i % 4 == 3) p.top_k = 25, p.top_p = 0.95f;
    if (i % 3 == 0) p.n_logprobs = int(i) / 3;
    if (i == 5) request.n_prompt_logprobs = 2;
    penalise(p, i / 2);
    if (with_masks && i % 2) request.filter = std::make_shared<Multiples>(1 + int(i), 2, 20 + int(i));
    if (with_masks && i == 4) p.min_tokens = 20, p.stop_token_ids = {10, 20, 30}, p.ignore_eos = false;
  }
  return requests;
}

// A request that ends, by a stop id, with its n-th token or before; of those it would give without.
inline Request stopped(const Request& request, const std::vector<int32_t>& answer, size_t n) {
  Request with_stop = request;
  with_stop.params.stop_token_ids = {answer.at(n - 1)};
  return with_stop;
}

}  // namespace ridge
