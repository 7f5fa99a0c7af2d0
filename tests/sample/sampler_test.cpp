// The sampler against brute force: a draw is a function of (seed, counter), so the probability of every token is measured over many counters and compared
// with a distribution computed the obvious way, by sorting everything.
#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "sample/random_logits.h"

namespace ridge {
namespace {

Sampled sample_once(std::vector<float> logits, const SamplingParams& params, uint64_t seed = 1, uint64_t counter = 0, std::vector<int32_t> history = {},
                    int n_prompt = 0, std::vector<int32_t> banned = {}) {
  Sampler sampler(int(logits.size()));
  return sampler.sample(logits, {.params = params, .history = history, .n_prompt = n_prompt, .seed = seed, .counter = counter, .banned = banned});
}

std::vector<double> normalised(std::vector<double> p) {
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

// Keeps tokens in order of key until their probability reaches `mass`.
std::vector<double> cut(const std::vector<double>& p, const std::vector<double>& key, double mass) {
  std::vector<int> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key[a] < key[b]; });
  std::vector<double> kept(p.size(), 0);
  double sum = 0;
  for (const int i : order) {
    if (sum >= mass || p[i] == 0) break;
    kept[i] = p[i];
    sum += p[i];
  }
  return normalised(kept);
}

std::vector<double> brute_force(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<double> p(logits.size());
  for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp(double(logits[i]) / params.temperature);
  p = normalised(p);
  if (params.top_k > 0) {
    std::vector<double> sorted = p;
    std::sort(sorted.rbegin(), sorted.rend());
    if (params.top_k < int(p.size()))
      for (double& x : p) x = x >= sorted[params.top_k - 1] ? x : 0;
    p = normalised(p);
  }
  if (params.typical_p < 1) {
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    std::vector<double> key;
    for (const double x : p) key.push_back(x > 0 ? std::abs(-std::log(x) - entropy) : 1e300);
    p = cut(p, key, params.typical_p);
  }
  if (params.top_p < 1) {
    std::vector<double> key;
    for (const double x : p) key.push_back(-x);
    p = cut(p, key, params.top_p);
  }
  const double floor = *std::max_element(p.begin(), p.end()) * params.min_p;
  for (double& x : p) x = x >= floor ? x : 0;
  return normalised(p);
}

TEST(Sampler, DrawsFollowTheDistributionOfEveryCombinationOfCuts) {
  std::vector<SamplingParams> cases;
  for (const float temperature : {0.5f, 1.0f, 1.7f})
    for (const int top_k : {0, 5, 100})
      for (const float typical : {1.0f, 0.6f})
        for (const float top_p : {1.0f, 0.7f})
          for (const float min_p : {0.0f, 0.1f}) {
            SamplingParams p;
            p.temperature = temperature, p.top_k = top_k, p.typical_p = typical, p.top_p = top_p, p.min_p = min_p;
            cases.push_back(p);
          }
  constexpr int kVocab = 40, kDraws = 8000;
  const std::vector<float> logits = random_logits(kVocab, 3);
  for (const SamplingParams& params : cases) {
    const std::vector<double> expected = brute_force(logits, params);
    std::vector<int> n(kVocab, 0);
    Sampler sampler(kVocab);
    for (int i = 0; i < kDraws; ++i) {
      std::vector<float> scratch = logits;
      n[sampler.sample(scratch, {.params = params, .seed = 7, .counter = uint64_t(i)}).token]++;
    }
    for (int t = 0; t < kVocab; ++t) {
      const double sigma = std::sqrt(expected[t] * (1 - expected[t]) / kDraws);
      EXPECT_NEAR(double(n[t]) / kDraws, expected[t], 5 * sigma + 1e-9)
          << "token " << t << " T " << params.temperature << " k " << params.top_k << " typical " << params.typical_p << " p " << params.top_p << " min " << params.min_p;
    }
  }
}

TEST(Sampler, CutsKeepExactlyTheTokensOfAFullSortInALargeVocabulary) {
  constexpr int kVocab = 20'000;
  for (const float spread : {0.5f, 3.0f}) {
    const std::vector<float> logits = random_logits(kVocab, 9, spread);
    std::vector<SamplingParams> cases(4);
    cases[0].top_p = 0.8f;
    cases[1].typical_p = 0.3f;
    cases[2].top_k = 50;
    cases[3].min_p = 0.2f;
    for (const SamplingParams& params : cases) {
      const std::vector<double> expected = brute_force(logits, params);
      Sampler sampler(kVocab);
      for (int i = 0; i < 100; ++i) {
        std::vector<float> scratch = logits;
        EXPECT_GT(expected[sampler.sample(scratch, {.params = params, .seed = 11, .counter = uint64_t(i)}).token], 0);
      }
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEqualLogits) {
  SamplingParams greedy;
  greedy.temperature = 0;
  for (const int n : {1, 15, 16, 1024, 1025, 5000}) {
    std::vector<float> logits(n, -1.0f);
    EXPECT_EQ(sample_once(logits, greedy).token, 0);
    for (const int first : {0, n / 3, n - 1}) {
      std::vector<float> x = logits;
      for (int i = first; i < n; ++i) x[i] = 2.0f;
      EXPECT_EQ(sample_once(x, greedy).token, first);
    }
  }
}

TEST(Sampler, SelectionEqualsASortIncludingTies) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const int n = 1 + int(random() % 6000), k = 1 + int(random() % (round % 2 ? 20 : 3000));
    std::vector<float> logits(n);
    for (float& x : logits) x = float(int(random() % 200));
    std::vector<TokenLogprob> got, expected;
    select_top_k(got, logits, k);
    for (int i = 0; i < n; ++i) expected.push_back({i, logits[i]});
    std::stable_sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
    expected.resize(std::min(n, k));
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].token, expected[i].token);
  }
}

TEST(Sampler, RepetitionPenaltyIsHuggingFacesOncePerTokenWithinItsReach) {
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 2.0f;
  // 3 / 2 < 2: the token that was seen (in the prompt, twice) loses; a negative logit moves further down.
  EXPECT_EQ(sample_once({3.0f, 2.0f, -1.0f}, params, 1, 0, {0, 0, 2}, 3).token, 1);
  EXPECT_EQ(sample_once({5.0f, 2.0f, -1.0f}, params, 1, 0, {0, 0, 2}, 3).token, 0) << "a token seen twice is penalised once";
  EXPECT_EQ(sample_once({-1.0f, -1.5f}, params, 1, 0, {0}, 0).token, 1);
  params.penalty_last_n = 1;
  EXPECT_EQ(sample_once({3.0f, 2.0f, -1.0f}, params, 1, 0, {0, 0, 2}, 3).token, 0);
  params.penalty_last_n = 0;
  EXPECT_EQ(sample_once({3.0f, 2.0f, -1.0f}, params, 1, 0, {0, 0, 0}, 3).token, 0);
}

TEST(Sampler, PresenceAndFrequencyCountGeneratedTokensOnly) {
  SamplingParams params;
  params.temperature = 0;
  params.presence_penalty = 1.5f;
  EXPECT_EQ(sample_once({3.0f, 2.0f}, params, 1, 0, {0, 0, 0}, 3).token, 0);
  EXPECT_EQ(sample_once({3.0f, 2.0f}, params, 1, 0, {0, 0, 0}, 2).token, 1);
  params.presence_penalty = 0;
  params.frequency_penalty = 0.4f;
  EXPECT_EQ(sample_once({3.0f, 2.0f}, params, 1, 0, {0, 0, 0}, 1).token, 0);
  EXPECT_EQ(sample_once({3.0f, 2.0f}, params, 1, 0, {0, 0, 0}, 0).token, 1);
}

TEST(Sampler, OneCallLeavesNoTraceInTheNext) {
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 1.5f, params.presence_penalty = 0.5f, params.frequency_penalty = 0.5f, params.dry_multiplier = 0.5f, params.dry_allowed_length = 1;
  Sampler used(50);
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<int32_t> history(30);
    for (int32_t& t : history) t = int32_t(random() % 50);
    std::vector<float> a = random_logits(50, round), b = a;
    const SampleInput input{.params = params, .history = history, .n_prompt = 10, .seed = 1, .counter = uint64_t(round)};
    EXPECT_EQ(used.sample(a, input).token, Sampler(50).sample(b, input).token);
  }
}

TEST(Sampler, BiasAndBansDecide) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{1, 5.0f}};
  EXPECT_EQ(sample_once({3.0f, 0.0f, 1.0f}, params).token, 1);
  EXPECT_EQ(sample_once({3.0f, 0.0f, 1.0f}, params, 1, 0, {}, 0, {1}).token, 0);
  params.logit_bias = {{0, -INFINITY}};
  params.temperature = 1;
  for (int i = 0; i < 500; ++i) EXPECT_NE(sample_once({3.0f, 0.0f, 1.0f}, params, 2, i).token, 0);
  EXPECT_THROW(sample_once({1.0f, 1.0f}, params, 1, 0, {}, 0, {0, 1}), Error);
}

TEST(Sampler, LogprobsAreTheModelsOwnWhateverIsSampled) {
  const std::vector<float> logits = random_logits(300, 4);
  double norm = 0;
  for (const float x : logits) norm += std::exp(double(x));
  norm = std::log(norm);
  SamplingParams params;
  params.n_logprobs = 5;
  params.temperature = 0.7f, params.top_k = 20, params.repetition_penalty = 3.0f;
  params.logit_bias = {{17, 4.0f}};
  const Sampled s = sample_once(logits, params, 1, 3, {1, 2, 3}, 3);
  EXPECT_NEAR(s.logprob, logits[s.token] - norm, 1e-5);
  ASSERT_EQ(s.top.size(), 5u);
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(s.top[i].logprob, sorted[i] - norm, 1e-5);
  params.n_logprobs = -1;
  EXPECT_TRUE(sample_once(logits, params, 1, 3, {1, 2, 3}, 3).top.empty());
}

TEST(Sampler, NotANumberIsAnErrorAndNotAToken) {
  SamplingParams greedy;
  greedy.temperature = 0;
  for (const int at : {0, 5, 1500, 1999})
    for (const float bad : {NAN, -NAN, INFINITY}) {
      std::vector<float> logits(2000, 1.0f);
      logits[at] = bad;
      EXPECT_THROW(sample_once(logits, greedy), Error);
      EXPECT_THROW(sample_once(logits, {}), Error);
    }
  std::vector<float> masked(2000, -INFINITY);
  masked[77] = 0;
  EXPECT_EQ(sample_once(masked, greedy).token, 77);
  EXPECT_EQ(sample_once(masked, {}).token, 77);
}

TEST(Sampler, TheSameSeedAndCounterGiveTheSameTokenAndOthersDiffer) {
  const std::vector<float> logits = random_logits(1000, 8, 1.0f);
  int n_equal = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(sample_once(logits, {}, 5, i).token, sample_once(logits, {}, 5, i).token);
    n_equal += sample_once(logits, {}, 5, i).token == sample_once(logits, {}, 6, i).token;
    n_equal += sample_once(logits, {}, 5, i).token == sample_once(logits, {}, 5, i + 1000).token;
  }
  EXPECT_LT(n_equal, 20);
}

TEST(Philox, MatchesThePublishedVectors) {
  using A = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (A{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (A{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}), (A{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SamplingParams, EveryFieldOutOfRangeIsRefusedByName) {
  const auto refused = [](const std::string& name, auto change) {
    SamplingParams params;
    change(params);
    try {
      params.validate();
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).rfind(name, 0), 0u) << e.what();
    }
  };
  refused("temperature", [](auto& p) { p.temperature = -1; });
  refused("temperature", [](auto& p) { p.temperature = NAN; });
  refused("top_k", [](auto& p) { p.top_k = -1; });
  refused("top_p", [](auto& p) { p.top_p = 0; });
  refused("top_p", [](auto& p) { p.top_p = 1.5f; });
  refused("min_p", [](auto& p) { p.min_p = -0.1f; });
  refused("typical_p", [](auto& p) { p.typical_p = 2; });
  refused("repetition_penalty", [](auto& p) { p.repetition_penalty = 0; });
  refused("presence_penalty", [](auto& p) { p.presence_penalty = NAN; });
  refused("frequency_penalty", [](auto& p) { p.frequency_penalty = 1000; });
  refused("penalty_last_n", [](auto& p) { p.penalty_last_n = -2; });
  refused("dynatemp_range", [](auto& p) { p.dynatemp_range = -1; });
  refused("dynatemp_exponent", [](auto& p) { p.dynatemp_exponent = NAN; });
  refused("top_n_sigma", [](auto& p) { p.top_n_sigma = -2; });
  refused("xtc_probability", [](auto& p) { p.xtc_probability = 1.5f; });
  refused("xtc_threshold", [](auto& p) { p.xtc_threshold = -0.1f; });
  refused("mirostat", [](auto& p) { p.mirostat = 3; });
  refused("mirostat_tau", [](auto& p) { p.mirostat_tau = -1; });
  refused("mirostat_eta", [](auto& p) { p.mirostat_eta = NAN; });
  refused("dry_multiplier", [](auto& p) { p.dry_multiplier = -1; });
  refused("dry_base", [](auto& p) { p.dry_base = 0.5f; });
  refused("dry_allowed_length", [](auto& p) { p.dry_allowed_length = -1; });
  refused("dry_penalty_last_n", [](auto& p) { p.dry_penalty_last_n = -2; });
  refused("logit_bias", [](auto& p) { p.logit_bias[3] = NAN; });
  refused("logit_bias", [](auto& p) { p.logit_bias[-3] = 1; });
  refused("max_tokens", [](auto& p) { p.max_tokens = -2; });
  refused("min_tokens", [](auto& p) { p.max_tokens = 3, p.min_tokens = 4; });
  refused("stop", [](auto& p) { p.stop = {""}; });
  refused("stop_token_ids", [](auto& p) { p.stop_token_ids = {-1}; });
  refused("n_logprobs", [](auto& p) { p.n_logprobs = 100'000; });
  EXPECT_NO_THROW(SamplingParams{}.validate());
}

// With penalties, bans and every cut that follows top-k; what the largest logits cannot decide they leave alone.
TEST(Sampler, TheLargestLogitsAloneGiveTheTokenOfTheWholeRow) {
  std::mt19937 random(5);
  const auto some = [&](std::initializer_list<float> values) { return *(values.begin() + random() % values.size()); };
  int n_decided = 0, n_left = 0;
  for (int i = 0; i < 3000; ++i) {
    const int n_vocab = i % 3 == 0 ? 40 : 900;
    std::vector<float> logits = random_logits(n_vocab, uint32_t(i), some({0.5f, 2.0f, 6.0f}));
    if (i % 5 == 0)
      for (float& x : logits) x = std::round(x);                             // equals at every edge
    SamplingParams params{.temperature = some({0.0f, 0.3f, 1.0f, 1.7f}), .dynatemp_range = some({0.0f, 0.0f, 0.2f}), .top_k = int(some({1, 2, 20, 40, 60, 200, 0})), .top_p = some({1.0f, 0.9f, 0.3f}),
                          .min_p = some({0.0f, 0.05f}), .typical_p = some({1.0f, 1.0f, 0.8f}), .xtc_probability = some({0.0f, 0.5f}), .repetition_penalty = some({1.0f, 1.3f, 2.0f}),
                          .presence_penalty = some({0.0f, 0.7f}), .frequency_penalty = some({0.0f, 0.4f}), .penalty_last_n = int(some({-1, 8}))};
    std::vector<int32_t> history(random() % 60), banned(random() % 3);
    std::vector<TokenLogprob> top;
    select_top_k(top, logits, std::min(n_vocab, 64));
    for (int32_t& t : history) t = random() % 2 ? top[random() % top.size()].token : int32_t(random() % uint32_t(n_vocab));
    for (int32_t& t : banned) t = top[random() % top.size()].token;
    const SampleInput input{.params = params, .history = history, .n_prompt = int(history.size() / 2), .seed = 9, .counter = uint64_t(i), .banned = banned};
    Sampler sampler(n_vocab);
    const auto from_top = sampler.sample_top(top, input);
    (from_top ? n_decided : n_left)++;
    if (from_top) {
      EXPECT_EQ(from_top->token, sampler.sample(logits, input).token) << "case " << i;
    }
  }
  EXPECT_GT(n_decided, 1500);
  EXPECT_GT(n_left, 300);
}

}  // namespace
}  // namespace ridge
