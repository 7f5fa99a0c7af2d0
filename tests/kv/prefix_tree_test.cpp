// The prefix tree against a model of the models: what a page holds at a position depends on the tokens up to it alone, so whatever was adopted, copied, evicted or
// swapped, every position that a query may see must read the mark of its tokens.
#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "kv/null_backend.h"
#include "kv/prefix_node.h"

namespace ridge {
namespace {

using Tokens = std::vector<int32_t>;

KvSpec attention_spec(int window, int sinks = 0) {
  KvSpec spec{.window = window, .sinks = sinks};
  spec.planes[0] = {1, 4, FormatId::f32};
  return spec;
}

KvSpec recurrent_spec() {
  KvSpec spec{.kind = KvKind::recurrent};
  spec.planes[0] = {.n_heads = 1, .head_dim = 4, .every = 64};
  spec.planes[1] = {.n_heads = 1, .head_dim = 4};
  return spec;
}

int32_t mark_of(const Tokens& tokens, int n) { return int32_t(hash_on(17, std::span(tokens).first(size_t(n)))); }

// A sequence whose computation is to leave the mark of its first p + 1 tokens at position p, and at the start of a recurrent page that of the tokens before it.
struct Runner {
  Tokens tokens;
  Track track;
  PrefixPlace place;
  bool is_preempted = false;

  void compute(KvCache& kv, int n) {
    for (int p = track.n_computed; p < track.n_computed + n; ++p)
      for (const KvRef& ref : kv.refs()) {
        const bool recurrent = kv.spec(ref.group).kind == KvKind::recurrent;
        const int32_t page = track.pages[ref.group][p / ref.page_size];
        ASSERT_GE(page, 0);
        if (recurrent && p % 64 == 0) *reinterpret_cast<int32_t*>(ref.plane(0, page)) = mark_of(tokens, p);
        *reinterpret_cast<int32_t*>(ref.plane(recurrent ? 1 : 0, page) + (p % ref.page_size) * 16) = mark_of(tokens, p + 1);
      }
    track.n_computed += n;
  }

  void check(const KvCache& kv) const {
    const int n = track.n_computed;
    if (n == 0) return;
    for (const KvRef& ref : kv.refs()) {
      const KvSpec& spec = kv.spec(ref.group);
      const bool recurrent = spec.kind == KvKind::recurrent;
      for (int p = 0; p < n; ++p) {
        const bool seen = recurrent ? p / 64 == (n - 1) / 64 : spec.window == 0 || p > n - spec.window || p < spec.sinks;
        if (!seen) continue;
        const int32_t page = track.pages[ref.group][p / ref.page_size];
        ASSERT_GE(page, 0) << "position " << p << " of " << n;
        if (recurrent && p % 64 == 0) {
          ASSERT_EQ(*reinterpret_cast<const int32_t*>(ref.plane(0, page)), mark_of(tokens, p)) << "state before " << p;
        }
        ASSERT_EQ(*reinterpret_cast<const int32_t*>(ref.plane(recurrent ? 1 : 0, page) + (p % ref.page_size) * 16), mark_of(tokens, p + 1)) << "position " << p << " of " << n;
      }
    }
  }
};

void check_all(KvCache& kv, PrefixTree& tree, const std::vector<Runner>& runners) {
  std::vector<const Track*> tracks;
  for (const Runner& r : runners) {
    r.check(kv);
    tracks.push_back(&r.track);
  }
  tree.check_integrity();
  kv.check_integrity(tracks, tree.held());
}

struct Case { const char* name; std::vector<KvSpec> specs; int page_size; int64_t swap_bytes; };

TEST(PrefixTree, WhateverIsAdoptedCopiedEvictedOrSwappedEverySequenceReadsItsOwnTokens) {
  const std::vector<Case> cases = {{"full", {attention_spec(0)}, 16, 0},
                                   {"full, swapped", {attention_spec(0)}, 16, 6 * 256},
                                   {"window", {attention_spec(0), attention_spec(40)}, 16, 0},
                                   {"windows and sinks alone, swapped", {attention_spec(1), attention_spec(70, 5)}, 16, 9 * 256},
                                   {"recurrent", {recurrent_spec(), attention_spec(4), attention_spec(0)}, 64, 0},
                                   {"recurrent alone, swapped", {recurrent_spec()}, 64, 4 * 2000}};
  for (const Case& c : cases) {
    int64_t n_swapped_in = 0;
    for (uint32_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(std::string(c.name) + ", seed " + std::to_string(seed));
      std::mt19937 random(seed);
      NullBackend backend;
      int64_t bytes = 0;
      for (const KvSpec& spec : c.specs) bytes += (8 + random() % 24) * c.page_size * (spec.kind == KvKind::recurrent ? 17 : 16);
      KvCache kv(c.specs, backend, {.page_size = c.page_size, .max_bytes = bytes, .max_context = 8 * c.page_size, .max_seqs = 3, .max_step_tokens = 2 * c.page_size, .n_kept_ends = int(random() % 4)});
      PrefixTree tree(kv, {.swap_bytes = c.swap_bytes});
      std::vector<Runner> runners(3);
      std::vector<Tokens> texts = {{}};      // what may be begun with: texts that grow out of one another
      int64_t n_hits = 0, n_partial = 0;
      for (int round = 0; round < 1500; ++round) {
        Runner& r = runners[random() % runners.size()];
        const auto end = [&](bool preempted) {
          tree.enter_all(r.track, r.place, r.tokens, int(r.tokens.size()) / 2);
          if (preempted) tree.want_back(r.place);
          else tree.leave(r.place);
          kv.release(r.track);
        };
        if (std::exchange(r.is_preempted, false)) {
          tree.adopt(r.track, r.place, r.tokens, false);
        } else if (r.tokens.empty()) {
          r.tokens = texts[random() % texts.size()];
          r.tokens.resize(random() % (r.tokens.size() + 1));
          const int n_more = 1 + int(random() % (2 * c.page_size));
          for (int i = 0; i < n_more; ++i) r.tokens.push_back(int32_t(random() % 2));
          if (int(r.tokens.size()) > 7 * c.page_size) r.tokens.resize(size_t(7 * c.page_size));
          if (texts.size() < 12) texts.push_back(r.tokens);
          else texts[random() % texts.size()] = r.tokens;
          r.place.key = random() % 8 ? "" : "other";
          const int n_expected = tree.match(r.place, 0, r.tokens), n = tree.adopt(r.track, r.place, r.tokens, true);
          ASSERT_LE(n, n_expected);
          ASSERT_LT(n, int(r.tokens.size()));
          ASSERT_EQ(n, r.track.n_computed);
          n_hits += n > 0;
          n_partial += n % c.page_size != 0;
        } else if (r.track.n_computed == int(r.tokens.size())) {
          if (int(r.tokens.size()) < 7 * c.page_size && random() % 2) {
            r.tokens.push_back(int32_t(random() % 2));
          } else {
            end(false);
            r.tokens.clear();
          }
        } else if (random() % 8 == 0) {
          end(true);
          r.is_preempted = true;
        } else {
          const int n = std::min(1 + int(random() % (2 * c.page_size)), int(r.tokens.size()) - r.track.n_computed);
          if (tree.reserve(r.track, r.track.n_computed + n)) {
            r.compute(kv, n);
            tree.enter(r.track, r.place, r.tokens, int(r.tokens.size()) / 2);
            kv.release_unseen(r.track, r.track.n_computed);
            if (random() % 4 == 0) tree.enter_all(r.track, r.place, r.tokens, int(r.tokens.size()));     // for somebody who needs it now
          } else {
            // Alone, a sequence of seven pages always fits.
            end(false);
            r.tokens.clear();
          }
        }
        if (random() % 200 == 0) tree.flush();
        check_all(kv, tree, runners);
        if (HasFatalFailure()) return;
      }
      const PrefixReport report = tree.report();
      EXPECT_GT(n_hits, 20);
      EXPECT_GT(n_partial, 5);
      EXPECT_GT(report.n_evicted_pages, 0);
      n_swapped_in += report.n_swapped_in;
      EXPECT_LE(report.swapped_bytes, c.swap_bytes);
      for (Runner& r : runners) {
        tree.leave(r.place);
        kv.release(r.track);
      }
      tree.flush();
      EXPECT_EQ(tree.report().n_nodes, 0);
      for (int g = 0; g < kv.n_groups(); ++g) EXPECT_EQ(kv.n_free_pages(g), kv.n_pages(g));
    }
    EXPECT_EQ(n_swapped_in > 0, c.swap_bytes > 0) << c.name;
  }
}

Tokens text_of(int first, int n) {
  Tokens tokens(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens[size_t(i)] = first + i;
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// One sequence from beginning to end, in one step; returns the length of its hit.
int serve(KvCache& kv, PrefixTree& tree, const Tokens& tokens, const std::string& salt = "", bool finish = true) {
  Runner r{.tokens = tokens};
  r.place.key = prefix_key("", salt);
  const int n = tree.adopt(r.track, r.place, tokens, true);
  EXPECT_TRUE(tree.reserve(r.track, int(tokens.size())));
  r.compute(kv, int(tokens.size()) - n);
  tree.enter(r.track, r.place, tokens, int(tokens.size()));
  kv.release_unseen(r.track, int(tokens.size()));
  r.check(kv);
  if (finish) tree.enter_all(r.track, r.place, tokens, int(tokens.size()));
  tree.leave(r.place);
  kv.release(r.track);
  return n;
}

TEST(PrefixTree, AHitIsCountedInTokensAndTheLastTokenIsComputedAgain) {
  NullBackend backend;
  KvCache kv({attention_spec(0)}, backend, {.page_size = 16, .max_bytes = 1 << 20, .max_context = 1000, .max_seqs = 4});
  PrefixTree tree(kv);
  const Tokens a = text_of(100, 60);
  EXPECT_EQ(serve(kv, tree, a), 0);
  EXPECT_EQ(serve(kv, tree, a), 59) << "known wholly";
  EXPECT_EQ(serve(kv, tree, a + text_of(1000, 5)), 60) << "three pages and a part of one";
  EXPECT_EQ(serve(kv, tree, Tokens(a.begin(), a.begin() + 40) + text_of(2000, 30)), 40) << "parted inside a page";
  EXPECT_EQ(serve(kv, tree, Tokens(a.begin(), a.begin() + 35) + text_of(3000, 30)), 32) << "three tokens are not worth a copy";
  EXPECT_EQ(serve(kv, tree, text_of(101, 50)), 0);
  const PrefixReport report = tree.report();
  EXPECT_EQ(report.n_lookups, 6);
  EXPECT_EQ(report.n_hits, 4);
  EXPECT_EQ(report.n_hit_tokens, 59 + 60 + 40 + 32);
}

TEST(PrefixTree, OtherKeysShareNothingAndMissesSayWhy) {
  NullBackend backend;
  KvCache kv({attention_spec(0)}, backend, {.page_size = 16, .max_bytes = 8 * 256, .max_context = 128, .max_seqs = 1});
  ASSERT_EQ(kv.n_pages(0), 8);
  PrefixTree tree(kv);
  const Tokens a = text_of(100, 64), b = text_of(500, 64), c = text_of(900, 128);
  EXPECT_EQ(serve(kv, tree, a, "alice"), 0);
  EXPECT_EQ(serve(kv, tree, a, "bob"), 0);
  EXPECT_EQ(serve(kv, tree, a, "alice"), 63);
  const auto misses = [&](MissReason reason) { return tree.report().misses[size_t(reason)]; };
  EXPECT_EQ(misses(MissReason::nothing_cached), 1);
  EXPECT_EQ(misses(MissReason::other_key), 1);
  EXPECT_EQ(serve(kv, tree, c, "bob"), 0);             // takes all pages
  EXPECT_EQ(serve(kv, tree, a, "alice"), 0);
  EXPECT_EQ(misses(MissReason::evicted), 1);
  EXPECT_EQ(misses(MissReason::nothing_cached), 2);
}

TEST(PrefixTree, LeavesThatWereUsedLongestAgoGoFirst) {
  NullBackend backend;
  KvCache kv({attention_spec(0)}, backend, {.page_size = 16, .max_bytes = 6 * 256, .max_context = 96, .max_seqs = 1});
  ASSERT_EQ(kv.n_pages(0), 6);
  PrefixTree tree(kv);
  const Tokens system = text_of(0, 16), a = system + text_of(100, 16), b = system + text_of(200, 16), c = system + text_of(300, 16);
  serve(kv, tree, a);
  serve(kv, tree, b);
  serve(kv, tree, c);                                  // four pages: system, a, b, c
  EXPECT_EQ(serve(kv, tree, a + text_of(1, 1)), 32);   // a is the newest now
  serve(kv, tree, text_of(700, 48));                   // three pages more: one too many
  EXPECT_EQ(tree.match({.key = prefix_key("", "")}, 0, b + Tokens{1}), 16) << "b was the oldest leaf";
  EXPECT_EQ(tree.match({.key = prefix_key("", "")}, 0, a + Tokens{1}), 32);
  EXPECT_EQ(tree.match({.key = prefix_key("", "")}, 0, c + Tokens{1}), 32);
}

TEST(PrefixTree, AWindowIsNeededOnlyBeforeTheEndOfTheHit) {
  NullBackend backend;
  // A window of two pages, and room for the windows of two sequences: the ends of turns outlive what lies between them.
  KvCache kv({attention_spec(0), attention_spec(32)}, backend,
             {.page_size = 16, .max_bytes = 1 << 20, .max_context = 640, .max_seqs = 1, .max_step_tokens = 160, .n_kept_ends = 2});
  PrefixTree tree(kv);
  const Tokens first = text_of(0, 160);
  serve(kv, tree, first);
  serve(kv, tree, text_of(1000, 160));
  EXPECT_EQ(serve(kv, tree, first + text_of(5000, 10)), 160) << "a turn that goes on";
  // Parted in the middle, where the window is gone; the next one that parts there finds it.
  serve(kv, tree, text_of(2000, 160));
  const Tokens middle(first.begin(), first.begin() + 80);
  EXPECT_LT(serve(kv, tree, middle + text_of(6000, 40)), 80);
  EXPECT_GT(tree.report().missed_tokens[size_t(MissReason::window_gone)], 0);
  serve(kv, tree, text_of(3000, 100));
  EXPECT_EQ(serve(kv, tree, middle + text_of(7000, 40)), 80);
}

TEST(PrefixTree, ARecurrentStateIsKeptAtTurnEndsAndWherePromptsPart) {
  NullBackend backend;
  KvCache kv({recurrent_spec()}, backend, {.page_size = 64, .max_bytes = 1 << 20, .max_context = 6400, .max_seqs = 1, .max_step_tokens = 1280, .n_kept_ends = 6});
  PrefixTree tree(kv);
  const Tokens first = text_of(0, 1000);
  serve(kv, tree, first);
  EXPECT_EQ(serve(kv, tree, first + text_of(5000, 70)), 1000);
  for (const int other : {20000, 30000, 40000}) serve(kv, tree, text_of(other, 1000));       // push out the states between
  EXPECT_EQ(serve(kv, tree, first + text_of(6000, 70)), 1000) << "the end of a turn";
  const Tokens part(first.begin(), first.begin() + 700);
  EXPECT_EQ(serve(kv, tree, part + text_of(7000, 70)), 512) << "a multiple of 512";
  for (const int other : {50000, 60000, 70000}) serve(kv, tree, text_of(other, 1000));
  EXPECT_EQ(serve(kv, tree, part + text_of(8000, 70)), 700) << "a place where prompts parted";
}

}  // namespace
}  // namespace ridge
