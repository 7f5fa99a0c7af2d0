// Who is taken from the queue, what is computed only once, and how long steps get, on a cache without a model whose time is simulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/scheduler.h"
#include "kv/null_backend.h"
#include "kv/prefix_tree.h"

namespace ridge {
namespace {

KvSpec full_spec() {
  KvSpec spec{};
  spec.planes[0] = {1, 4, FormatId::f32};
  return spec;
}

std::unique_ptr<Sequence> sequence_of(uint64_t id, int n_common, int n_own, int priority = 0) {
  auto s = std::make_unique<Sequence>();
  s->id = id;
  for (int i = 0; i < n_common; ++i) s->tokens.push_back(i);
  for (int i = 0; i < n_own; ++i) s->tokens.push_back(int32_t(1000 * id) + i);
  s->n_prompt = s->n_known();
  s->priority = priority;
  s->arrived = std::chrono::steady_clock::now();
  return s;
}

// A machine on which a step takes 10 ms, 2 ms for each token, and 1 us for each position that one attends to.
struct Machine {
  NullBackend backend;
  KvCache kv;
  PrefixTree tree;
  Scheduler scheduler;
  std::map<uint64_t, int> n_left;            // answers
  std::map<uint64_t, int> n_prefilled;
  double seconds = 0;                        // of the last step
  double seconds_of_decodes = 0;             // what it would have taken without prefill
  int n_blocks_left = 0;                     // of a slice
  uint64_t slice = 0;
  double per_position = 1e-6;                // seconds
  int n_slices = 0;
  std::vector<uint64_t> admitted;

  explicit Machine(SchedulerLimits limits, int n_pages = 4096, int page_size = 64)
      : kv({full_spec()}, backend, {.page_size = page_size, .max_bytes = int64_t{n_pages} * page_size * 16, .max_context = 1 << 20, .max_seqs = limits.max_seqs}), tree(kv), scheduler(kv, limits, &tree) {}

  void add(std::unique_ptr<Sequence> s, int n_answer) {
    n_left[s->id] = n_answer;
    scheduler.add(std::move(s));
  }

  double cost(int first, int n) const { return 0.002 * n + per_position * scheduler.costs().attended(first, n); }

  // Ids that got a token.
  std::vector<uint64_t> step(int n_blocks = 1) {
    const Plan& plan = scheduler.plan();
    seconds = seconds_of_decodes = plan.grants.empty() ? 0 : 0.010;
    std::vector<uint64_t> got, done;
    for (const Grant& g : plan.grants) {
      Sequence& s = *g.sequence;
      if (std::find(admitted.begin(), admitted.end(), s.id) == admitted.end()) admitted.push_back(s.id);
      seconds += cost(s.track.n_computed, g.n_tokens);
      if (s.n_generated() > 0) seconds_of_decodes += cost(s.track.n_computed, g.n_tokens);
      if (s.n_generated() == 0) n_prefilled[s.id] += g.n_tokens;
      scheduler.computed(s, s.track.n_computed + g.n_tokens);
      if (s.n_to_compute() > 0) continue;
      s.tokens.push_back(int32_t(-1 - int(s.id)));
      got.push_back(s.id);
      if (--n_left[s.id] == 0) done.push_back(s.id);
    }
    if (!plan.grants.empty()) scheduler.observe_step(plan, seconds);
    if (plan.slice.sequence && plan.slice.seconds > 0) {
      Sequence& s = *plan.slice.sequence;
      if (std::exchange(slice, plan.slice.serial) != plan.slice.serial) n_blocks_left = n_blocks, n_slices++;
      const double one = cost(s.track.n_computed, plan.slice.n_tokens) / n_blocks;
      const int n = std::min(n_blocks_left, std::max(1, int(std::min(plan.slice.seconds, 1e6) / one)));
      n_blocks_left -= n;
      seconds += n * one;
      scheduler.observe_slice(n * one, n);
      if (n_blocks_left == 0) {
        n_prefilled[s.id] += plan.slice.n_tokens;
        scheduler.computed(s, s.track.n_computed + plan.slice.n_tokens);
      }
    }
    for (const uint64_t id : done) scheduler.remove(id);
    tree.check_integrity();
    kv.check_integrity(scheduler.tracks(), tree.held());
    return got;
  }
};

TEST(Admission, ThoseThatArriveTogetherComputeWhatTheyShareOnce) {
  Machine m({32, 512, 32});
  for (uint64_t id = 1; id <= 32; ++id) m.add(sequence_of(id, 384, 128), 2);
  for (int i = 0; i < 1000 && !m.scheduler.idle(); ++i) m.step();
  EXPECT_TRUE(m.scheduler.idle());
  EXPECT_EQ(m.n_prefilled[1], 512);
  for (uint64_t id = 2; id <= 32; ++id) EXPECT_EQ(m.n_prefilled[id], 128) << id;
}

TEST(Admission, SeveralAnswersToOnePromptShareItToTheLastTokenButOne) {
  Machine m({8, 512, 8});
  for (uint64_t id = 1; id <= 4; ++id) m.add(sequence_of(id, 100, 0), 30);
  for (int i = 0; i < 1000 && !m.scheduler.idle(); ++i) m.step();
  EXPECT_EQ(m.n_prefilled[1], 100);
  for (uint64_t id = 2; id <= 4; ++id) EXPECT_EQ(m.n_prefilled[id], 1) << id;
}

TEST(Admission, NobodyWaitsForAPrefixThatIsNotBeingComputed) {
  Machine m({4, 64, 4});
  m.add(sequence_of(1, 640, 0), 1);
  m.add(sequence_of(2, 320, 100), 1);
  m.add(sequence_of(3, 0, 40), 1);
  m.step();
  EXPECT_EQ(m.n_prefilled[1], 64);
  EXPECT_EQ(m.scheduler.find(2)->state, SeqState::waiting);
  m.scheduler.preempt(*m.scheduler.find(1));
  m.scheduler.remove(1);
  m.step();
  EXPECT_EQ(m.scheduler.find(2)->state, SeqState::running) << "who it waited for is gone";
  EXPECT_EQ(m.scheduler.find(2)->n_cached, 64);
}

TEST(Admission, PriorityDecidesAndThenArrival) {
  Machine m({1, 64, 1, Policy::priority});
  m.add(sequence_of(1, 0, 10, 5), 1);
  m.add(sequence_of(2, 0, 10, 1), 1);
  m.add(sequence_of(3, 0, 10, 5), 1);
  m.add(sequence_of(4, 0, 10, 1), 1);
  for (int i = 0; i < 100 && !m.scheduler.idle(); ++i) m.step();
  EXPECT_EQ(m.admitted, (std::vector<uint64_t>{2, 4, 1, 3}));
}

TEST(Admission, TheLongestPrefixGoesFirstButNobodyIsOvertakenForever) {
  Machine m({1, 2048, 1, Policy::longest_prefix});
  m.add(sequence_of(1, 640, 10), 1);
  while (!m.scheduler.idle()) m.step();
  m.add(sequence_of(2, 0, 300), 1);
  uint64_t id = 3;
  int n_before = 0;
  for (bool served = false; !served && n_before < 200; n_before++) {
    while (m.scheduler.n_waiting() < 4) m.add(sequence_of(id++, 640, 10), 1);
    for (const uint64_t got : m.step()) served |= got == 2;
  }
  EXPECT_GT(n_before, 8) << "the prefix does not decide";
  EXPECT_LE(n_before, Scheduler::kMostOvertakes + 2);
}

double worst_step_beside_decodes(Machine& m, int n_prompt, int n_blocks) {
  for (uint64_t id = 1; id <= 8; ++id) m.add(sequence_of(id, 0, 100), 100'000);
  for (int i = 0; i < 40; ++i) m.step(n_blocks);
  m.add(sequence_of(9, 0, n_prompt), 1);
  double worst = 0;
  int n_steps = 0;
  for (bool served = false; !served && n_steps < 200'000; n_steps++) {
    const auto got = m.step(n_blocks);
    EXPECT_GE(got.size(), 8u) << "a decode was left out";
    served = std::find(got.begin(), got.end(), 9u) != got.end();
    if (!served) worst = std::max(worst, m.seconds / m.seconds_of_decodes);
  }
  EXPECT_LT(n_steps, 200'000) << "the prompt never got through";
  for (uint64_t id = 1; id <= 9; ++id) m.scheduler.remove(id);
  return worst;
}

TEST(Admission, ALongPromptDoesNotStallThoseThatDecode) {
  {
    // At the end of such a prompt a token costs 18 ms, and prefill may take 21 of a step: less than a chunk is worth.
    Machine m({16, 512, 16, Policy::first_come, 0.8, 0, 0, 64, 28});
    EXPECT_LT(worst_step_beside_decodes(m, 16'000, 28), 1.9);
    EXPECT_GT(m.n_slices, 100) << "the test no longer reaches slices";
  }
  {
    Machine m({16, 512, 16, Policy::first_come, 2.5, 0, 0, 0, 28});          // no slices: chunks
    EXPECT_LT(worst_step_beside_decodes(m, 2000, 28), 3.8);
  }
  {
    Machine m({16, 512, 16});                                               // no limit
    EXPECT_GT(worst_step_beside_decodes(m, 2000, 28), 10);
  }
}

TEST(Admission, ManyShortPromptsAtOnceAreAnsweredSoonAndOneAloneSlowsNobodyDown) {
  Machine m({16, 512, 16, Policy::first_come, 0.5, 0, 0, 64, 28});
  uint64_t id = 1;
  for (; id <= 4; ++id) m.add(sequence_of(id, 0, 16), 100000);
  for (int i = 0; i < 300; ++i) m.step(28);
  m.add(sequence_of(id++, 0, 128), 100000);
  double worst = 0;
  while (m.n_prefilled[id - 1] < 128) m.step(28), worst = std::max(worst, m.seconds / m.seconds_of_decodes);
  EXPECT_LT(worst, 1.8);
  const double alone = 8 * m.cost(0, 128);
  double waited = 0;
  for (int i = 0; i < 8; ++i) m.add(sequence_of(id++, 0, 128), 100000);
  while (m.n_prefilled[id - 1] < 128) m.step(28), waited += m.seconds;
  EXPECT_LT(waited, 1.6 * alone) << "they shared with those that decode";
}

TEST(Admission, AShortPromptIsNotHeldUpByALongOne) {
  Machine m({16, 512, 16, Policy::first_come, 0.8, 0, 0, 64, 28});
  for (uint64_t id = 1; id <= 8; ++id) m.add(sequence_of(id, 0, 100), 100'000);
  for (int i = 0; i < 40; ++i) m.step(28);
  m.add(sequence_of(9, 0, 8000), 1);
  for (int i = 0; i < 10; ++i) m.step(28);
  m.add(sequence_of(10, 0, 30), 1);
  int n_steps = 0;
  for (bool served = false; !served && n_steps < 5000; n_steps++) {
    const auto got = m.step(28);
    served = std::find(got.begin(), got.end(), 10u) != got.end();
  }
  EXPECT_LT(n_steps, 20);
}

TEST(Admission, ATargetForTheTimeBetweenTokensLimitsStepsAndHowManyRun) {
  Machine m({64, 512, 64, Policy::first_come, 0, 0, 0.050, 64, 28});
  m.per_position = 1e-9;
  for (uint64_t id = 1; id <= 60; ++id) m.add(sequence_of(id, 0, 200), 1500);
  int n_over = 0, n_steps = 0, most = 0;
  for (; n_steps < 20'000 && !m.scheduler.idle(); ++n_steps) {
    const auto got = m.step(28);
    if (n_steps > 200 && got.size() > 1) n_over += m.seconds > 0.056, most = std::max(most, int(got.size()));
  }
  EXPECT_TRUE(m.scheduler.idle());
  EXPECT_LT(n_over, n_steps / 50);
  EXPECT_GE(most, 15);
  EXPECT_LE(most, 21) << "ten milliseconds and two for each: 20 fit";
}

TEST(Admission, EverySequenceFinishesWithAnyPolicyTargetAndMemory) {
  int64_t n_preemptions = 0, n_hits = 0, n_slices = 0;
  for (uint32_t seed = 0; seed < 24; ++seed) {
    std::mt19937 random(seed);
    SchedulerLimits limits{1 + int(random() % 6), 16 + int(random() % 100), 1 + int(random() % 8), Policy(seed % 3), seed % 4 ? 0.5 : 0.0, seed % 5 == 0 ? 0.5 : 0, seed % 7 == 0 ? 0.06 : 0, seed % 2 ? 64 : 0, 8};
    Machine m(limits, 14 + int(random() % 20), 16);
    uint64_t id = 1;
    int n_steps = 0;
    while (id <= 40 || !m.scheduler.idle()) {
      ASSERT_LT(++n_steps, 100'000) << "no end in sight, seed " << seed;
      while (id <= 40 && (random() % 4 == 0 || m.scheduler.idle())) {
        auto s = sequence_of(id++, int(random() % 3) * 30, 1 + int(random() % 60), int(random() % 3));
        s->reuses_prefix = random() % 6 != 0;
        m.add(std::move(s), 1 + int(random() % 40));
      }
      if (random() % 40 == 0) m.scheduler.remove(1 + random() % 40);
      if (random() % 100 == 0) m.tree.flush();
      m.step(8);
    }
    n_preemptions += m.scheduler.n_preemptions();
    n_hits += m.tree.report().n_hits;
    n_slices += m.n_slices;
    m.tree.flush();
    EXPECT_EQ(m.kv.n_free_pages(0), m.kv.n_pages(0)) << "seed " << seed;
  }
  EXPECT_GT(n_preemptions, 50);
  EXPECT_GT(n_hits, 50);
  EXPECT_GT(n_slices, 50);
}

TEST(StepCost, LearnsWhatDecodesAndPrefillCostAndKeepsItWhileTheOtherIsAllThereIs) {
  NullBackend backend;
  KvCache kv({full_spec()}, backend, {.page_size = 64, .max_bytes = 1 << 20, .max_context = 1000, .max_seqs = 4});
  StepCost costs(kv);
  std::mt19937 random(1);
  const auto noise = [&] { return 0.9 + 0.2 * double(random() % 1000) / 1000; };
  for (int i = 0; i < 50; ++i) {
    const int n = 50 + int(random() % 400), first = int(random() % 2000);
    costs.observe({.n_prefill = double(n), .prefill_attended = costs.attended(first, n)}, (0.002 * n + 1e-6 * costs.attended(first, n)) * noise());
    const int decodes = 1 + int(random() % 10);
    costs.observe({.n_decodes = decodes, .decode_attended = 100.0 * decodes}, (0.01 + 0.001 * decodes) * noise());
  }
  for (int i = 0; i < 2000; ++i) costs.observe({.n_decodes = 4, .decode_attended = 400.0 + i}, 0.014 * noise() * (i % 100 == 0 ? 20 : 1));
  EXPECT_NEAR(costs.decode_seconds(4, 1400), 0.014, 0.004);
  EXPECT_NEAR(costs.prefill_seconds(200, costs.attended(1000, 200)), 0.4 + 0.22, 0.15);
  const int n = costs.tokens_within(0.3, 500, 512);
  EXPECT_LE(costs.prefill_seconds(n, costs.attended(500, n)), 0.3);
  EXPECT_GT(costs.prefill_seconds(n + 1, costs.attended(500, n + 1)), 0.3);
}

}  // namespace
}  // namespace ridge
