// The cache against a model of it: each live track remembers what was written at every position, pages hold those marks, and after any random mixture of
// reserve, write, release_unseen, fork and release every position that a query may see still reads what was written there.
#include "kv/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "kv/null_backend.h"

namespace ridge {
namespace {

KvSpec spec_of(int window, int sinks = 0, int n_heads = 1) {
  KvSpec spec{.window = window, .sinks = sinks};
  spec.planes[0] = {n_heads, 4, FormatId::f32};
  spec.planes[1] = {n_heads, 4, FormatId::f32};
  return spec;
}

// The mark of a position lies in the first number of its K row in every layer.
int32_t& mark(const KvRef& ref, const Track& track, int position) {
  const int32_t page = track.pages[ref.group][position / ref.page_size];
  EXPECT_GE(page, 0);
  return *reinterpret_cast<int32_t*>(ref.plane(0, page) + (position % ref.page_size) * 16);
}

struct Follower {
  Track track;
  std::vector<int32_t> written;              // by position
};

bool sees(const KvSpec& spec, int next, int position) { return spec.window == 0 || position > next - spec.window || position < spec.sinks; }

TEST(KvCache, InFp8AHeadOfAPositionTakesItsCodesAndOneScale) {
  KvSpec spec;
  spec.planes[0] = {8, 128, FormatId::fp8_e4m3};
  spec.planes[1] = {8, 64, FormatId::fp8_e4m3};
  EXPECT_EQ(kv_bytes_per_token(spec), 8 * (128 + 4) + 8 * (64 + 4));
  for (const int page_size : {16, 32, 64}) {
    const KvGroupLayout group = group_specs({spec, spec}, page_size).front();
    EXPECT_EQ(group.page_bytes, 2 * page_size * kv_bytes_per_token(spec));
    const KvRef ref{.base = nullptr, .page_bytes = group.page_bytes, .offsets = group.offsets[1], .planes = spec.planes, .page_size = page_size};
    for (const int plane : {0, 1}) {
      EXPECT_EQ(ref.scales(plane, 3) - ref.plane(plane, 3), page_size * 8 * spec.planes[size_t(plane)].head_dim);
      EXPECT_EQ((ref.scales(plane, 3) - ref.base) % 16, 0) << "scales are copied 16 bytes at a time";
    }
    EXPECT_EQ(ref.scales(1, 3) + page_size * 8 * 4 - ref.base, 4 * group.page_bytes) << "the last ones end the page";
  }
}

TEST(KvCache, WhatAQueryMaySeeIsNeverLostOrSharedWhateverHappens) {
  for (const int page_size : {16, 32, 64}) {
    NullBackend backend;
    const std::vector<KvSpec> specs = {spec_of(0), spec_of(40), spec_of(0), spec_of(70, 5), spec_of(1)};
    KvCache kv(specs, backend, {.page_size = page_size, .max_bytes = 120'000, .max_context = 600, .max_seqs = 6, .max_step_tokens = 50});
    ASSERT_EQ(kv.n_groups(), 4);
    std::mt19937 random(page_size);
    std::vector<Follower> live(6);
    int32_t next_mark = 1;
    int n_refused = 0, n_forks = 0;
    for (int round = 0; round < 4000; ++round) {
      Follower& f = live[random() % live.size()];
      const int n = f.track.n_computed;
      switch (random() % 8) {
        case 0: {
          Follower& from = live[random() % live.size()];
          if (&from == &f) break;
          // Only at the end: an earlier point may be gone from a window.
          const int n_free = kv.n_free_pages(0);
          if (kv.fork(f.track, from.track, from.track.n_computed)) {
            f.written = from.written;
            n_forks++;
          } else {
            ASSERT_EQ(kv.n_free_pages(0), n_free);
          }
          break;
        }
        case 1:
          kv.release(f.track);
          f.written.clear();
          break;
        default: {
          const int more = 1 + int(random() % 50);
          if (n + more > 600) break;
          std::vector<int> n_free;
          for (int g = 0; g < kv.n_groups(); ++g) n_free.push_back(kv.n_free_pages(g));
          if (!kv.reserve(f.track, n + more)) {
            for (int g = 0; g < kv.n_groups(); ++g) ASSERT_EQ(kv.n_free_pages(g), n_free[g]) << "a refused reservation took pages";
            n_refused++;
            break;
          }
          for (int p = n; p < n + more; ++p) {
            f.written.push_back(next_mark);
            for (const KvRef& ref : kv.refs()) mark(ref, f.track, p) = next_mark;
            next_mark++;
          }
          f.track.n_computed = n + more;
          kv.release_unseen(f.track, n + more);
        }
      }
      for (const Follower& seen : live)
        for (size_t h = 0; h < specs.size(); ++h)
          for (int p = 0; p < seen.track.n_computed; ++p)
            if (sees(specs[h], seen.track.n_computed, p)) {
              ASSERT_EQ(mark(kv.refs()[h], seen.track, p), seen.written[p]) << "round " << round << " position " << p;
            }
      std::vector<const Track*> tracks;
      for (const Follower& seen : live) tracks.push_back(&seen.track);
      kv.check_integrity(tracks);
    }
    EXPECT_GT(n_refused, 0);
    EXPECT_GT(n_forks, 0);
    for (Follower& f : live) kv.release(f.track);
    for (int g = 0; g < kv.n_groups(); ++g) EXPECT_EQ(kv.n_free_pages(g), kv.n_pages(g));
  }
}

TEST(KvCache, AWindowHoldsOnlyThePagesItSees) {
  NullBackend backend;
  KvCache kv({spec_of(32), spec_of(32, 3)}, backend, {.page_size = 16, .max_bytes = 1 << 20, .max_context = 4096, .max_seqs = 1, .max_step_tokens = 1});
  Track track;
  for (int n = 1; n <= 4096; ++n) {
    ASSERT_TRUE(kv.reserve(track, n));
    track.n_computed = n;
    kv.release_unseen(track, n);
    for (int g = 0; g < 2; ++g) {
      int held = 0;
      for (const int32_t page : track.pages[g]) held += page >= 0;
      ASSERT_LE(held, 3 + g);
    }
  }
  EXPECT_EQ(track.pages[0][0], -1);
  EXPECT_GE(track.pages[1][0], 0) << "the page of the sinks was given back";
  // A page is given back at the first position from which no query sees any of it: p sees (p - 32, p], so page 0 goes at 47 and not at 46.
  kv.release(track);
  ASSERT_TRUE(kv.reserve(track, 48));
  kv.release_unseen(track, 46);
  EXPECT_GE(track.pages[0][0], 0);
  kv.release_unseen(track, 47);
  EXPECT_EQ(track.pages[0][0], -1);
}

TEST(KvCache, LayersOfOneSpecShareAGroupAndTheirPlanesDoNotOverlap) {
  NullBackend backend;
  const std::vector<KvSpec> specs = {spec_of(0), spec_of(16), spec_of(0, 0, 3), spec_of(0), spec_of(16)};
  KvCache kv(specs, backend, {.page_size = 16, .max_bytes = 1 << 20, .max_context = 128, .max_seqs = 2});
  EXPECT_EQ(kv.n_groups(), 3);
  EXPECT_EQ(kv.refs()[0].group, kv.refs()[3].group);
  EXPECT_EQ(kv.refs()[1].group, kv.refs()[4].group);
  EXPECT_EQ(kv.bytes_per_token(), 4 * 32 + 96);
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (const KvRef& ref : kv.refs())
    for (int plane = 0; plane < 2; ++plane)
      for (int page = 0; page < kv.n_pages(ref.group); ++page) {
        const auto start = reinterpret_cast<uintptr_t>(ref.plane(plane, page));
        EXPECT_EQ(start % 64, 0u);
        ranges.emplace_back(start, start + 16 * row_bytes(ref.planes[plane].format, ref.planes[plane].n_heads * ref.planes[plane].head_dim));
      }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST(KvCache, MemoryCoversTheSameTokensInEveryGroupAndNeverMoreThanAllowed) {
  NullBackend backend;
  for (const int64_t max_bytes : {20'000, 100'000, 500'000}) {
    KvCache kv({spec_of(0), spec_of(0, 0, 2), spec_of(100)}, backend, {.page_size = 16, .max_bytes = max_bytes, .max_context = 100'000, .max_seqs = 4, .max_step_tokens = 64});
    EXPECT_LE(kv.n_bytes(), max_bytes);
    EXPECT_EQ(kv.n_pages(0), kv.n_pages(1));
    EXPECT_LE(kv.n_pages(2), kv.n_pages(0));
    EXPECT_LE(kv.n_pages(2), 4 * (8 + 1) + 4);
  }
}

TEST(KvCache, TooLittleMemoryIsRefusedWithTheCostOfAToken) {
  NullBackend backend;
  try {
    KvCache kv({spec_of(0)}, backend, {.page_size = 16, .max_bytes = 511, .max_context = 100, .max_seqs = 1});
    FAIL() << "was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("32 a token"), std::string::npos) << e.what();
  }
}

TEST(KvCacheDeathTest, IntegrityCheckNoticesALeakAndADoubleUse) {
  NullBackend backend;
  KvCache kv({spec_of(0)}, backend, {.page_size = 16, .max_bytes = 1 << 16, .max_context = 64, .max_seqs = 2});
  Track a;
  ASSERT_TRUE(kv.reserve(a, 20));
  kv.check_integrity({&a});
  EXPECT_DEATH(kv.check_integrity({}), "n_refs");
  const Track b = a;
  EXPECT_DEATH(kv.check_integrity({&a, &b}), "n_refs");
}

}  // namespace
}  // namespace ridge
