// The workers: everything is done once, tasks see each other's results in order, and nobody misses a wake-up, however many threads share the cores.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/team.h"

namespace ridge {
namespace {

// Each task reads what the one before wrote into every cell, so a missing barrier or a lost share shows in the sum.
struct Shift { int64_t* to; const int64_t* from; int64_t n; };
void shift(const Shift& s, Lane& lane) {
  lane.share(s.n, 3, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) s.to[i] = s.from[(i + 7) % s.n] + 1;
  });
}

struct TwoPhases { int64_t* cells; int64_t* sums; int64_t n; };
void two_phases(const TwoPhases& t, Lane& lane) {
  const auto [first, last] = lane.part(t.n);
  for (int64_t i = first; i < last; ++i) t.cells[i] += 1;
  lane.barrier();
  t.sums[lane.worker] = std::accumulate(t.cells, t.cells + t.n, int64_t{0});
}

TEST(Team, TasksSeeTheResultsOfThoseBefore) {
  for (int n_workers = 1; n_workers <= 8; ++n_workers) {
    Team team(n_workers, false);
    std::vector<int64_t> a(50, 0), b(50, 0);
    constexpr int kTasks = 300;
    for (int i = 0; i < kTasks; i += 2) {
      team.run(shift, Shift{b.data(), a.data(), 50}, nullptr);
      team.run(shift, Shift{a.data(), b.data(), 50}, nullptr);
    }
    team.wait();
    for (const int64_t v : a) ASSERT_EQ(v, kTasks) << n_workers;
  }
}

TEST(Team, BarriersInsideATaskAreMetByAll) {
  for (const int n_workers : {1, 2, 3, 8}) {
    Team team(n_workers, true);
    std::vector<int64_t> cells(29, 0), sums(8, 0);
    for (int i = 1; i <= 100; ++i) {
      team.run(two_phases, TwoPhases{cells.data(), sums.data(), 29}, nullptr);
      team.wait();
      for (int w = 0; w < n_workers; ++w) ASSERT_EQ(sums[static_cast<size_t>(w)], 29 * i);
    }
  }
}

TEST(Team, NobodyMissesAWakeUpAfterAGapOfAnyLength) {
  std::mt19937 rng(3);
  for (const int n_workers : {2, 3, 8}) {
    Team team(n_workers, false);
    std::vector<int64_t> a(16, 0), b(16, 0);
    int n_tasks = 0;
    for (int step = 0; step < 120; ++step) {
      for (int i = 0; i < 2; ++i, n_tasks += 2) {
        team.run(shift, Shift{b.data(), a.data(), 16}, nullptr);
        team.run(shift, Shift{a.data(), b.data(), 16}, nullptr);
      }
      team.wait();
      ASSERT_EQ(a[0], n_tasks);
      // Around the times at which a waiting worker starts to yield and to sleep.
      if (rng() % 3) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 1500));
    }
  }
}

TEST(Team, ParallelCoversTheRangeOnce) {
  Team team(3, false);
  std::vector<int> hits(1001, 0);
  for (const int64_t chunk : {1, 10, 5000}) {
    std::fill(hits.begin(), hits.end(), 0);
    team.parallel(1001, chunk, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) hits[static_cast<size_t>(i)]++;
    });
    for (const int h : hits) ASSERT_EQ(h, 1);
  }
  team.parallel(0, 1, [](int64_t, int64_t) { FAIL(); });
}

// The workers are played one after the other in turns of any order, since only the counter is common to them.
TEST(Team, StreamsAreSharedWithoutGapsOrOverlaps) {
  for (const int n_workers : {1, 2, 3, 7})
    for (const int64_t grain : {1, 2})
      for (const int64_t n_shares : {4, 8})
        for (int64_t n = 0; n < 700; n = n < 40 ? n + 1 : n * 2 - 7) {
          std::vector<int> times(static_cast<size_t>(n));
          std::atomic<int64_t> counter{0};
          for (int w = n_workers - 1; w >= 0; --w) {
            Lane lane{.worker = w, .n_workers = n_workers, .counter = &counter};
            lane.share_streams(n, grain, n_shares, [&](int64_t first, int64_t last) {
              for (int64_t i = first; i < last; ++i) ++times[static_cast<size_t>(i)];
            });
          }
          for (int64_t i = 0; i < n; ++i) ASSERT_EQ(times[static_cast<size_t>(i)], 1) << i << " of " << n << ", " << n_workers << " workers, grain " << grain << ", shares " << n_shares;
        }
}

TEST(Team, EndsWhetherItsWorkersSpinOrSleep) {
  for (const int gap_us : {0, 100, 3000}) {
    Team team(4, false);
    team.parallel(10, 1, [](int64_t, int64_t) {});
    std::this_thread::sleep_for(std::chrono::microseconds(gap_us));
  }
}

TEST(Team, ScratchIsEachWorkersOwn) {
  Team team(3, false);
  team.reserve(4096, 4096);
  team.reserve(1024, 8192);
  struct Mark { int unused; };
  team.run<Mark>([](const Mark&, Lane& lane) {
    *reinterpret_cast<int*>(lane.own.data()) = lane.worker;
    lane.barrier();
    if (*reinterpret_cast<int*>(lane.own.data()) != lane.worker || lane.own.size() < 4096 || lane.shared.size() < 8192) __builtin_trap();
  }, Mark{}, nullptr);
  team.wait();
}

// However long it takes to write the memory first, it is read once at least.
TEST(Bandwidth, IsMeasuredInNoTime) { EXPECT_GT(measure_read_bandwidth(2, 1 << 20, 0.0), 0); }

}  // namespace
}  // namespace ridge
