// The scheduler against random loads, with a cache but no model: whatever arrives, every sequence finishes, nobody overtakes, budgets hold and no page leaks.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "kv/null_backend.h"

namespace ridge {
namespace {

KvSpec spec_of(int window) {
  KvSpec spec{.window = window};
  spec.planes[0] = spec.planes[1] = {1, 4, FormatId::f32};
  return spec;
}

std::unique_ptr<Sequence> sequence_of(uint64_t id, int n_prompt) {
  auto s = std::make_unique<Sequence>();
  s->id = id;
  s->n_prompt = n_prompt;
  s->tokens.assign(n_prompt, 1);
  return s;
}

// What the engine does with a grant: computes it and samples a token when the sequence has caught up. True: a token was sampled.
bool compute(KvCache& kv, const Grant& grant) {
  Sequence& s = *grant.sequence;
  s.track.n_computed += grant.n_tokens;
  kv.release_unseen(s.track, s.track.n_computed);
  if (s.n_to_compute() > 0) return false;
  s.tokens.push_back(1);
  return true;
}

TEST(Scheduler, EverySequenceFinishesUnderAnyLoadAndNoLimitIsPassed) {
  int64_t n_preemptions = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    NullBackend backend;
    const int window = seed % 3 == 0 ? 24 : 0;
    const SchedulerLimits limits{1 + int(random() % 6), 1 + int(random() % 40), 1 + int(random() % 8)};
    // Memory for one or two of the longest sequences only: preemption is common.
    KvCache kv({spec_of(0), spec_of(window)}, backend,
               {.page_size = 16, .max_bytes = int64_t(14 + random() % 20) * 2 * 512, .max_context = 200, .max_seqs = limits.max_seqs, .max_step_tokens = limits.max_batch_tokens});
    Scheduler scheduler(kv, limits);
    std::map<uint64_t, int> n_left;                    // tokens to generate, by id
    uint64_t next_id = 1;
    int n_steps = 0;
    while (next_id <= 30 || !scheduler.idle()) {
      ASSERT_LT(++n_steps, 200'000) << "no end in sight, seed " << seed;
      while (next_id <= 30 && (random() % 4 == 0 || scheduler.idle())) {
        auto s = sequence_of(next_id, 1 + int(random() % 120));
        s->wants_all_logits = random() % 5 == 0;
        n_left[next_id++] = 1 + int(random() % 60);
        scheduler.add(std::move(s));
      }
      if (random() % 50 == 0) {
        const uint64_t id = 1 + random() % 30;
        if (scheduler.remove(id)) n_left.erase(id);
      }
      const Plan& plan = scheduler.plan();
      if (scheduler.idle()) {
        ASSERT_TRUE(plan.grants.empty());
        continue;
      }
      ASSERT_FALSE(plan.grants.empty()) << "nothing granted although something waits, seed " << seed;
      ASSERT_TRUE(plan.out_of_memory.empty());
      int n_tokens = 0, n_logits = 0;
      std::map<int, int> n_by_slot;
      for (const Grant& grant : plan.grants) {
        const Sequence& s = *grant.sequence;
        ASSERT_GT(grant.n_tokens, 0);
        ASSERT_LE(grant.n_tokens, s.n_to_compute());
        ASSERT_EQ(n_by_slot[s.slot]++, 0) << "two sequences in one slot";
        ASSERT_TRUE(s.slot >= 0 && s.slot < limits.max_seqs);
        n_tokens += grant.n_tokens;
        n_logits += s.wants_all_logits ? grant.n_tokens : grant.n_tokens == s.n_to_compute();
        ASSERT_GE(int(s.track.pages[0].size()) * 16, s.track.n_computed + grant.n_tokens);
      }
      ASSERT_LE(n_tokens, limits.max_batch_tokens);
      ASSERT_LE(n_logits, limits.max_logits);
      ASSERT_LE(scheduler.n_running(), limits.max_seqs);
      std::vector<uint64_t> done;
      for (const Grant& grant : plan.grants)
        if (compute(kv, grant) && --n_left[grant.sequence->id] == 0) done.push_back(grant.sequence->id);
      kv.check_integrity(scheduler.tracks());
      for (const uint64_t id : done) {
        ASSERT_TRUE(scheduler.remove(id));
        n_left.erase(id);
      }
    }
    EXPECT_TRUE(n_left.empty());
    for (int g = 0; g < kv.n_groups(); ++g) EXPECT_EQ(kv.n_free_pages(g), kv.n_pages(g));
    n_preemptions += scheduler.n_preemptions();
  }
  EXPECT_GT(n_preemptions, 100) << "the test no longer reaches preemption";
}

TEST(Scheduler, DecodesComeBeforePrefillsAndArrivalsAreServedInOrder) {
  NullBackend backend;
  KvCache kv({spec_of(0)}, backend, {.page_size = 16, .max_bytes = 1 << 20, .max_context = 1000, .max_seqs = 4});
  Scheduler scheduler(kv, {4, 10, 4});
  scheduler.add(sequence_of(1, 25));
  scheduler.add(sequence_of(2, 3));
  const auto step = [&] {
    std::vector<std::pair<uint64_t, int>> granted;
    for (const Grant& g : scheduler.plan().grants) {
      granted.emplace_back(g.sequence->id, g.n_tokens);
      compute(kv, g);
    }
    return granted;
  };
  using G = std::vector<std::pair<uint64_t, int>>;
  EXPECT_EQ(step(), (G{{1, 10}}));
  EXPECT_EQ(step(), (G{{1, 10}}));
  EXPECT_EQ(step(), (G{{1, 5}, {2, 3}}));
  scheduler.add(sequence_of(3, 30));
  EXPECT_EQ(step(), (G{{1, 1}, {2, 1}, {3, 8}}));
  EXPECT_EQ(step(), (G{{1, 1}, {2, 1}, {3, 8}}));
}

TEST(Scheduler, TheLatestArrivalIsPreemptedAndReturnsAtTheHeadOfTheQueue) {
  NullBackend backend;
  KvCache kv({spec_of(0)}, backend, {.page_size = 16, .max_bytes = 4 * 512, .max_context = 64, .max_seqs = 3});
  ASSERT_EQ(kv.n_pages(0), 4);
  Scheduler scheduler(kv, {3, 100, 3});
  for (uint64_t id = 1; id <= 3; ++id) scheduler.add(sequence_of(id, 16));
  scheduler.add(sequence_of(4, 1));
  for (const Grant& g : scheduler.plan().grants) compute(kv, g);      // three pages in use, one free; each needs another one now
  const Plan& plan = scheduler.plan();
  ASSERT_EQ(plan.grants.size(), 2u);
  EXPECT_EQ(plan.grants[0].sequence->id, 1u);
  EXPECT_EQ(plan.grants[1].sequence->id, 2u);
  EXPECT_EQ(scheduler.find(3)->state, SeqState::waiting);
  EXPECT_EQ(scheduler.find(3)->track.n_computed, 0);
  EXPECT_EQ(scheduler.n_preemptions(), 1);
  for (const Grant& g : plan.grants) compute(kv, g);
  scheduler.remove(1);
  const Plan& next = scheduler.plan();
  ASSERT_EQ(next.grants.size(), 2u);
  EXPECT_EQ(next.grants[1].sequence->id, 3u) << "a later arrival overtook the preempted one";
  EXPECT_EQ(next.grants[1].n_tokens, 17);
}

TEST(Scheduler, ASequenceThatCannotGrowAloneIsHandedBack) {
  NullBackend backend;
  KvCache kv({spec_of(0)}, backend, {.page_size = 16, .max_bytes = 2 * 512, .max_context = 64, .max_seqs = 2});
  Scheduler scheduler(kv, {2, 100, 2});
  scheduler.add(sequence_of(1, 40));
  scheduler.add(sequence_of(2, 5));
  int n_computed = 0;
  for (int i = 0; i < 100; ++i) {
    const Plan& plan = scheduler.plan();
    if (!plan.out_of_memory.empty()) {
      EXPECT_EQ(plan.out_of_memory.front()->id, 1u);
      EXPECT_EQ(n_computed, 32) << "it should have used all the pages there are";
      scheduler.remove(1);
      const Plan& next = scheduler.plan();
      ASSERT_EQ(next.grants.size(), 1u);
      EXPECT_EQ(next.grants[0].sequence->id, 2u);
      return;
    }
    for (const Grant& g : plan.grants) {
      if (g.sequence->id == 1) n_computed += g.n_tokens;
      compute(kv, g);
    }
  }
  FAIL() << "never handed back";
}

}  // namespace
}  // namespace ridge
