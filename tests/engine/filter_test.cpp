// What a request may ask of its sampling beyond parameters: filters of tokens, scores of the prompt, an embedding, times. Whatever one asks, the others get the
// tokens they would get alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/mask_worker.h"
#include "engine/exact_requests.h"
#include "engine/multiples.h"
#include "engine/tiny_model.h"

namespace ridge {
namespace {

std::map<uint64_t, Event> run(Engine& engine, const std::function<void()>& between_steps = {}) {
  std::map<uint64_t, Event> answers;         // everything of a request in one event
  while (!engine.idle()) {
    for (Event& event : engine.step()) {
      Event& all = answers.try_emplace(event.id, Event{.id = event.id}).first->second;
      for (Sampled& s : event.sampled) all.sampled.push_back(std::move(s));
      if (!event.prompt_logprobs.empty()) EXPECT_TRUE(std::exchange(all.prompt_logprobs, event.prompt_logprobs).empty()) << "scored twice";
      if (!event.embedding.empty()) all.embedding = event.embedding;
      all.finish = event.finish, all.error = event.error, all.timing = event.timing, all.stop_token = event.stop_token;
    }
    engine.check_integrity();
    if (between_steps) between_steps();
  }
  return answers;
}

std::vector<int32_t> tokens_of(const Event& event) {
  std::vector<int32_t> tokens;
  for (const Sampled& s : event.sampled) tokens.push_back(s.token);
  return tokens;
}

// Gives up in one of its calls.
class Faulty : public TokenFilter {
 public:
  explicit Faulty(bool in_restrict) : in_restrict_(in_restrict) {}
  bool restrict(std::span<uint32_t>) override {
    if (in_restrict_) fail("the grammar is broken");
    return false;
  }
  void accept(int32_t) override { fail("the token does not fit"); }
  bool done() const override { return false; }

 private:
  bool in_restrict_;
};

TEST(Filters, ChooseAmongWhatTheyAllowInAnyBatchAndAfterPreemptionAndEndTheAnswerWhenDone) {
  const TinyModel model;
  std::vector<std::vector<int32_t>> alone, plain_alone;
  const auto filtered = [](int i, float temperature) {
    Request request = greedy({3 + i, 20, 21}, 100);
    request.params.temperature = temperature;
    request.params.seed = i;
    request.filter = std::make_shared<Multiples>(5 + i, i % 2 ? 1 : 7, 10 + i);
    return request;
  };
  {
    Engine engine(model.checkpoint(), exact());
    for (int i = 0; i < 6; ++i) {
      const uint64_t id = engine.submit(filtered(i, i % 3 ? 0.9f : 0)), plain = engine.submit(greedy({40 + i}, 12));
      auto answers = run(engine);
      alone.push_back(tokens_of(answers[id]));
      plain_alone.push_back(tokens_of(answers[plain]));
      EXPECT_EQ(answers[id].finish, FinishReason::stop);
      EXPECT_EQ(answers[id].stop_token, -1) << "its last token is part of the answer";
      EXPECT_EQ(alone[i].size(), size_t(10 + i));
      for (size_t n = 0; n < alone[i].size(); ++n) EXPECT_EQ(alone[i][n] % (n % 2 ? (i % 2 ? 1 : 7) : 5 + i), 0);
      EXPECT_EQ(plain_alone[i].size(), 12u);
    }
  }
  EngineOptions o = exact();
  o.max_batch_tokens = 9;
  Engine engine(model.checkpoint(), o);
  std::vector<uint64_t> ids, plain;
  for (int i = 0; i < 6; ++i) ids.push_back(engine.submit(filtered(i, i % 3 ? 0.9f : 0))), plain.push_back(engine.submit(greedy({40 + i}, 12)));
  int n = 0;
  auto answers = run(engine, [&] {
    if (++n % 2 == 0) engine.preempt(ids[n / 2 % 6]);
  });
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(tokens_of(answers[ids[i]]), alone[i]) << i;
    EXPECT_EQ(tokens_of(answers[plain[i]]), plain_alone[i]) << i;
  }
  EXPECT_GT(engine.stats().n_preemptions, 3);
}

TEST(Filters, OneThatFailsOrLeavesNothingEndsItsRequestWithTheReasonAndNoOther) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  const uint64_t expected_id = engine.submit(greedy({40}, 12));
  const std::vector<int32_t> expected = tokens_of(run(engine)[expected_id]);
  const auto with = [](std::shared_ptr<TokenFilter> filter) {
    Request request = greedy({3, 20}, 30);
    request.filter = std::move(filter);
    return request;
  };
  const uint64_t a = engine.submit(with(std::make_shared<Faulty>(true))), plain = engine.submit(greedy({40}, 12)), b = engine.submit(with(std::make_shared<Faulty>(false)));
  // Only 0 (of multiples of 96) is allowed, and min_tokens bans it.
  Request contradiction = with(std::make_shared<Multiples>(96, 96, 30));
  contradiction.params.min_tokens = 5, contradiction.params.stop_token_ids = {0};
  const uint64_t c = engine.submit(contradiction);
  auto answers = run(engine);
  EXPECT_NE(answers[a].error.find("the grammar is broken"), std::string::npos) << answers[a].error;
  EXPECT_NE(answers[b].error.find("does not fit"), std::string::npos) << answers[b].error;
  EXPECT_NE(answers[c].error.find("min_tokens"), std::string::npos) << answers[c].error;
  for (const uint64_t id : {a, b, c}) {
    EXPECT_EQ(answers[id].finish, FinishReason::error);
    EXPECT_TRUE(answers[id].sampled.empty());
  }
  EXPECT_EQ(tokens_of(answers[plain]), expected);
}

TEST(PromptLogprobs, AreThoseOfEveryTokenButTheFirstInAnyChunkingAndAfterPreemption) {
  const TinyModel model;
  std::vector<int32_t> prompt;
  for (int i = 0; i < 70; ++i) prompt.push_back(3 + i * 37 % 90);
  std::vector<Sampled> expected(1);
  {
    EngineOptions o = exact();
    o.max_logits = 100, o.max_batch_tokens = 100;
    Engine engine(model.checkpoint(), o);
    Request request = greedy(prompt, 0);
    request.wants_all_logits = true;
    engine.set_logits_sink([&](uint64_t, int position, std::span<const float> logits) {
      ASSERT_EQ(size_t(position) + 1, expected.size());
      double norm = 0;
      for (const float x : logits) norm += std::exp(double(x));
      if (position + 1 == int(prompt.size())) return;
      Sampled s{.token = prompt[position + 1], .logprob = float(logits[prompt[position + 1]] - std::log(norm))};
      s.top.push_back({int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()), 0});
      expected.push_back(s);
    });
    engine.submit(request);
    run(engine);
    expected.erase(expected.begin());
  }
  for (const int chunk : {1, 7, 64}) {
    EngineOptions o = exact();
    o.max_batch_tokens = chunk;
    Engine engine(model.checkpoint(), o);
    Request request = greedy(prompt, chunk == 7 ? 0 : 4);
    request.n_prompt_logprobs = 2;
    const uint64_t id = engine.submit(request), plain = engine.submit(greedy(prompt, 4));
    int n = 0;
    auto answers = run(engine, [&] {
      if (++n % 4 == 0 && n < 40) engine.preempt(id);
    });
    const std::vector<Sampled>& got = answers[id].prompt_logprobs;
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].token, prompt[i + 1]);
      EXPECT_NEAR(got[i].logprob, expected[i].logprob, 1e-4);
      ASSERT_EQ(got[i].top.size(), 2u);
      EXPECT_EQ(got[i].top[0].token, expected[i].top[0].token);
    }
    if (chunk != 7) EXPECT_EQ(tokens_of(answers[id]), tokens_of(answers[plain]));
    EXPECT_TRUE(answers[plain].prompt_logprobs.empty());
  }
}

TEST(PromptLogprobs, AndEmbeddingsAreTheSameWhenThePrefixCacheHasThePromptAndOthersDecode) {
  const TinyModel model;
  std::vector<int32_t> prompt;
  for (int i = 0; i < 150; ++i) prompt.push_back(3 + i * 37 % 90);
  const auto ask = [&](Engine& engine) {
    Request scored = greedy(prompt, 3), embedded = greedy(prompt, 0);
    scored.n_prompt_logprobs = 1, embedded.wants_embedding = true;
    const uint64_t a = engine.submit(scored), b = engine.submit(embedded);
    auto answers = run(engine);
    return std::pair(answers[a], answers[b]);
  };
  Engine plain(model.checkpoint(), exact());
  const auto [scored, embedded] = ask(plain);
  ASSERT_EQ(scored.prompt_logprobs.size(), prompt.size() - 1);
  EngineOptions o = exact();
  o.prefix_cache = true, o.page_size = 16, o.max_slowdown = 0.5, o.kv_bytes = 8 << 20;
  Engine engine(model.checkpoint(), o);
  engine.submit(greedy(prompt, 5));
  run(engine);
  for (int i = 0; i < 4; ++i) engine.submit(greedy({5 + i}, 120));     // prefills are cut to pieces beside these
  for (int i = 0; i < 10; ++i) engine.step();
  const auto [again_scored, again_embedded] = ask(engine);
  EXPECT_GT(again_embedded.timing.n_cached, 0) << "the test no longer reaches a hit";
  EXPECT_EQ(again_embedded.embedding, embedded.embedding);
  EXPECT_EQ(tokens_of(again_scored), tokens_of(scored));
  ASSERT_EQ(again_scored.prompt_logprobs.size(), scored.prompt_logprobs.size());
  for (size_t i = 0; i < prompt.size() - 1; ++i) EXPECT_EQ(again_scored.prompt_logprobs[i].logprob, scored.prompt_logprobs[i].logprob) << i;
}

TEST(PromptLogprobs, OfAPromptThatPoisonsTheModelAreAnError) {
  const TinyModel model(Json::object(), NAN);
  Engine engine(model.checkpoint(), exact());
  Request request = greedy({3, 7, 5, 6}, 3);
  request.n_prompt_logprobs = 0;
  const uint64_t bad = engine.submit(request), good = engine.submit(greedy({3, 4, 5}, 1));
  auto answers = run(engine);
  EXPECT_EQ(answers[bad].finish, FinishReason::error);
  EXPECT_EQ(answers[good].finish, FinishReason::length);
}

TEST(Embedding, IsTheStateThatTheHeadTurnsIntoTheLastTokensLogits) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  std::vector<float> last_logits;
  engine.set_logits_sink([&](uint64_t, int position, std::span<const float> logits) {
    if (position == 2) last_logits.assign(logits.begin(), logits.end());
  });
  Request request = greedy({3, 4, 5}, 0);
  request.wants_embedding = request.wants_all_logits = true;
  const uint64_t id = engine.submit(request);
  // Among others, in chunks.
  Request other = greedy({9, 8}, 0);
  other.wants_embedding = true;
  engine.submit(other), engine.submit(greedy({11, 12, 13}, 5));
  auto answers = run(engine);
  const std::vector<float>& x = answers[id].embedding;
  ASSERT_EQ(x.size(), 64u);
  EXPECT_EQ(answers[id].finish, FinishReason::length);
  const StoredWeight stored = model.checkpoint().weights->get("lm_head.weight");
  std::vector<float> row(64);
  for (int v = 0; v < TinyModel::kVocab; ++v) {
    double logit = 0;
    decode_stored_row(row.data(), stored, v);
    for (int i = 0; i < 64; ++i) logit += double(row[i]) * x[i];
    EXPECT_NEAR(logit, last_logits[v], 1e-3);
  }
  other.params.max_tokens = 3;
  EXPECT_THROW(engine.submit(other), Error);
}

TEST(Timing, IsWholeInTheLastEventAndInOrder) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  const auto before = std::chrono::steady_clock::now();
  const uint64_t id = engine.submit(greedy({3, 4, 5}, 6));
  const RequestTiming t = run(engine)[id].timing;
  EXPECT_LE(before, t.arrived);
  EXPECT_LE(t.arrived, t.scheduled);
  EXPECT_LE(t.scheduled, t.first_token);
  EXPECT_LE(t.first_token, t.finished);
  EXPECT_EQ(t.n_prompt, 3);
  EXPECT_EQ(t.n_generated, 6);
  EXPECT_EQ(t.n_cached, 0);
  const uint64_t cancelled = engine.submit(greedy({3}, 6));
  engine.cancel(cancelled);
  EXPECT_GE(run(engine)[cancelled].timing.finished, t.finished);
}

TEST(MaskWorker, GivesEachFilterItsOwnMaskRoundAfterRound) {
  class Only : public TokenFilter {
   public:
    explicit Only(int t) : t_(t) {}
    bool restrict(std::span<uint32_t> mask) override {
      for (uint32_t& word : mask) EXPECT_EQ(std::exchange(word, 0), ~0u);
      mask[t_ / 32] = 1u << t_ % 32;
      return true;
    }
    void accept(int32_t) override {}
    bool done() const override { return false; }

   private:
    int t_;
  };
  MaskWorker worker(200);
  std::vector<std::unique_ptr<Only>> filters;
  for (int i = 0; i < 50; ++i) filters.push_back(std::make_unique<Only>(i * 4));
  for (int round = 0; round < 500; ++round) {
    worker.clear();
    const int n = round % 50;
    for (int i = 0; i < n; ++i) worker.add(filters[i].get());
    worker.begin();
    worker.wait();
    for (int i = 0; i < n; i += 1 + round % 2) {        // some are passed over
      const auto mask = worker.mask_of(filters[i].get());
      ASSERT_EQ(mask.size(), 7u);
      ASSERT_EQ(mask[i * 4 / 32], 1u << i * 4 % 32) << "round " << round << " filter " << i;
    }
  }
}

}  // namespace
}  // namespace ridge
