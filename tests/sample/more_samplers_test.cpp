// DRY, XTC, mirostat, top-n-sigma, dynamic temperature and masks, each against its formula written the obvious way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "sample/random_logits.h"
#include "sample/sampler.h"
#include "text/sequence_breakers.h"

namespace ridge {
namespace {

std::vector<double> softmax(const std::vector<float>& logits, double temperature = 1) {
  std::vector<double> p;
  for (const float x : logits) p.push_back(std::exp(double(x) / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

void normalise(std::vector<double>& p) {
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
}

// The share of every token over many draws lies where `expected` says.
void expect_distribution(const std::vector<float>& logits, const SamplingParams& params, const std::vector<double>& expected, std::span<const uint32_t> allowed = {}) {
  constexpr int kDraws = 12'000;
  Sampler sampler(int(logits.size()));
  std::vector<int> n(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> scratch = logits;
    n[sampler.sample(scratch, {.params = params, .seed = 3, .counter = uint64_t(i), .allowed = allowed}).token]++;
  }
  for (size_t t = 0; t < logits.size(); ++t) {
    const double sigma = std::sqrt(expected[t] * (1 - expected[t]) / kDraws);
    EXPECT_NEAR(double(n[t]) / kDraws, expected[t], 5 * sigma + 1e-9) << "token " << t;
  }
}

// What the penalty of each token must be: every earlier place is compared with the end token by token.
std::map<int32_t, double> dry_penalties(const SamplingParams& p, std::vector<int32_t> history, const std::vector<std::vector<int32_t>>& breakers = {}) {
  if (p.dry_penalty_last_n >= 0 && history.size() > size_t(p.dry_penalty_last_n)) history.erase(history.begin(), history.end() - p.dry_penalty_last_n);
  const int n = int(history.size());
  int limit = n;
  for (const auto& breaker : breakers)       // the rightmost that begins furthest right
    for (int at = n - int(breaker.size()); at >= 0; --at)
      if (std::equal(breaker.begin(), breaker.end(), history.begin() + at)) {
        limit = std::min(limit, n - at - int(breaker.size()));
        break;
      }
  std::map<int32_t, int> longest;
  for (int end = 1; end < n; ++end) {        // history[end] followed history[.., end)
    int length = 0;
    while (length < end && length < limit && history[end - 1 - length] == history[n - 1 - length]) ++length;
    if (length < p.dry_allowed_length || limit < p.dry_allowed_length) continue;
    const auto [it, fresh] = longest.try_emplace(history[end], length);
    if (!fresh) it->second = std::max(it->second, length);
  }
  std::map<int32_t, double> penalties;
  for (const auto& [token, length] : longest)
    if (std::find(breakers.begin(), breakers.end(), std::vector<int32_t>{token}) == breakers.end())
      penalties[token] = p.dry_multiplier * std::pow(p.dry_base, length - p.dry_allowed_length);
  return penalties;
}

TEST(Dry, EveryLogitFallsByTheLongestRepetitionItWouldCarryOn) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    constexpr int kVocab = 12;
    SamplingParams params;
    params.temperature = 0;
    params.dry_multiplier = 0.5f + float(random() % 10) / 4, params.dry_base = 1.0f + float(random() % 4) / 4;
    params.dry_allowed_length = int(random() % 4);
    params.dry_penalty_last_n = round % 3 ? -1 : int(random() % 40);
    std::vector<int32_t> history(random() % 60);
    for (int32_t& t : history) t = int32_t(random() % (round % 2 ? 3 : 8));
    std::vector<std::vector<int32_t>> breakers;
    if (round % 4 > 1) {
      auto map = std::make_shared<SequenceBreakers>();
      breakers = {{7}, {5, 6}};
      map->after[7] = {{}};
      map->after[5] = {{6}};
      params.dry_breakers = map;
    }
    const std::map<int32_t, double> expected = dry_penalties(params, history, breakers);
    // One token at a time stands in a contest whose margin the penalty decides.
    for (int32_t token = 0; token < 10; ++token) {
      const double penalty = expected.count(token) ? expected.at(token) : 0;
      for (const double margin : {penalty - 0.01, penalty + 0.01}) {
        if (std::abs(penalty) > 1e6) continue;
        std::vector<float> logits(kVocab, -1e9f);
        logits[11] = 0, logits[token] = float(margin);
        Sampler sampler(kVocab);
        EXPECT_EQ(sampler.sample(logits, {.params = params, .history = history}).token, margin > penalty ? token : 11) << "round " << round << " token " << token;
      }
    }
  }
}

TEST(Dry, ALongRepetitionMakesNoInfiniteLogit) {
  SamplingParams params;
  params.temperature = 0;
  params.dry_multiplier = 10, params.dry_base = 50;
  const std::vector<int32_t> history(5000, 1);
  std::vector<float> logits = {0, 5};
  EXPECT_EQ(Sampler(2).sample(logits, {.params = params, .history = history}).token, 0);
  EXPECT_TRUE(std::isfinite(logits[1]));
}

TEST(Xtc, OfTheTokensOverTheThresholdOnlyTheLeastLikelyStaysAsOftenAsAsked) {
  const std::vector<float> logits = random_logits(20, 5);
  for (const float threshold : {0.02f, 0.1f, 0.9f})
    for (const float probability : {0.3f, 1.0f}) {
      SamplingParams params;
      params.xtc_probability = probability, params.xtc_threshold = threshold;
      const std::vector<double> p = softmax(logits);
      std::vector<double> cut = p;
      double least = 2;
      for (const double x : p)
        if (x >= threshold) least = std::min(least, x);
      for (double& x : cut)
        if (x > least && x >= threshold) x = 0;
      normalise(cut);
      std::vector<double> expected(p.size());
      for (size_t i = 0; i < p.size(); ++i) expected[i] = probability * cut[i] + (1 - probability) * p[i];
      expect_distribution(logits, params, expected);
    }
}

TEST(TopNSigma, KeepsWhatLiesWithinNStandardDeviationsOfTheLargestLogit) {
  const std::vector<float> logits = random_logits(50, 6);
  double mean = 0, variance = 0;
  for (const float x : logits) mean += x / 50.0;
  for (const float x : logits) variance += (x - mean) * (x - mean) / 50.0;
  for (const float n : {0.5f, 1.0f, 2.0f}) {
    SamplingParams params;
    params.top_n_sigma = n, params.temperature = 1.5f;
    std::vector<double> expected = softmax(logits, 1.5);
    const double least = *std::max_element(logits.begin(), logits.end()) - n * std::sqrt(variance);
    for (size_t i = 0; i < 50; ++i)
      if (logits[i] < least) expected[i] = 0;
    normalise(expected);
    expect_distribution(logits, params, expected);
  }
}

TEST(DynamicTemperature, FollowsTheEntropyOfWhatTheCutsLeft) {
  const std::vector<float> logits = random_logits(20, 7);
  for (const float exponent : {1.0f, 2.5f}) {
    SamplingParams params;
    params.temperature = 1.2f, params.dynatemp_range = 0.8f, params.dynatemp_exponent = exponent, params.top_k = 6;
    std::vector<double> p = softmax(logits), sorted = p;
    std::sort(sorted.rbegin(), sorted.rend());
    for (double& x : p) x = x >= sorted[5] ? x : 0;
    normalise(p);
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    const double temperature = 0.4 + 1.6 * std::pow(entropy / std::log(6.0), exponent);
    for (double& x : p) x = x > 0 ? std::pow(x, 1 / temperature) : 0;
    normalise(p);
    expect_distribution(logits, params, p);
  }
}

TEST(Mirostat, TheSecondDropsWhatSurprisesMoreThanMuAndMovesMuByItsError) {
  const std::vector<float> logits = random_logits(60, 8);
  const std::vector<double> p = softmax(logits, 0.8);
  SamplingParams params;
  params.temperature = 0.8f, params.mirostat = 2, params.mirostat_tau = 2.0f, params.mirostat_eta = 0.3f;
  Sampler sampler(60);
  float mu = 2 * params.mirostat_tau;
  double expected_mu = mu;
  for (int i = 0; i < 500; ++i) {
    std::vector<double> cut = p;
    const double before = expected_mu;
    for (double& x : cut)
      if (-std::log2(x) > before) x = 0;
    if (std::accumulate(cut.begin(), cut.end(), 0.0) == 0) {
      const size_t likeliest = size_t(std::max_element(p.begin(), p.end()) - p.begin());
      cut[likeliest] = p[likeliest];
    }
    normalise(cut);
    std::vector<float> scratch = logits;
    const int32_t token = sampler.sample(scratch, {.params = params, .seed = 1, .counter = uint64_t(i), .mirostat_mu = &mu}).token;
    ASSERT_GT(cut[token], 0);
    expected_mu -= params.mirostat_eta * (-std::log2(cut[token]) - params.mirostat_tau);
    ASSERT_NEAR(mu, expected_mu, 1e-3);
    expected_mu = mu;
  }
}

TEST(Mirostat, TheFirstKeepsTheNumberOfTokensThatZipfsLawAsksFor) {
  constexpr int kVocab = 400;
  std::vector<float> logits(kVocab);         // exactly Zipf with s = 1.3, in the order of the ids
  for (int i = 0; i < kVocab; ++i) logits[i] = -1.3f * std::log(float(i + 1));
  SamplingParams params;
  params.mirostat = 1, params.mirostat_tau = 3.0f, params.mirostat_eta = 0;
  const double k = std::pow(0.3 * std::exp2(6.0) / (1 - std::pow(double(kVocab), -0.3)), 1 / 1.3);
  Sampler sampler(kVocab);
  float mu = 2 * params.mirostat_tau;
  int largest = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<float> scratch = logits;
    largest = std::max(largest, int(sampler.sample(scratch, {.params = params, .seed = 1, .counter = uint64_t(i), .mirostat_mu = &mu}).token));
  }
  EXPECT_EQ(mu, 6.0f);
  EXPECT_EQ(largest, int(k) - 1);
  // A slower decay than any target: surprise settles near tau.
  params.mirostat_eta = 0.1f;
  for (const int version : {1, 2}) {
    params.mirostat = version;
    mu = 2 * params.mirostat_tau;
    double surprise = 0;
    constexpr int kDraws = 4000;
    const std::vector<double> p = softmax(logits);
    for (int i = 0; i < kDraws; ++i) {
      std::vector<float> scratch = logits;
      surprise -= std::log2(p[sampler.sample(scratch, {.params = params, .seed = 2, .counter = uint64_t(i), .mirostat_mu = &mu}).token]) / kDraws;
    }
    EXPECT_NEAR(surprise, params.mirostat_tau, 1.0) << version;    // of the whole distribution; the controller sees that of what it kept
  }
}

TEST(Mirostat, OneTokenThatIsAllowedIsTaken) {
  SamplingParams params;
  for (const int version : {1, 2}) {
    params.mirostat = version;
    std::vector<float> logits(100, -INFINITY);
    logits[42] = -3;
    float mu = 10;
    EXPECT_EQ(Sampler(100).sample(logits, {.params = params, .mirostat_mu = &mu}).token, 42);
    EXPECT_TRUE(std::isfinite(mu));
  }
}

TEST(Masks, OnlyAllowedTokensAreDrawnInTheModelsOwnProportionsAndLogprobsAreTheModels) {
  constexpr int kVocab = 75;                 // not a multiple of the words' 32 bits
  const std::vector<float> logits = random_logits(kVocab, 9, 1.0f);
  std::vector<uint32_t> mask = {0, ~0u, 0};
  for (const int t : {3, 31, 64, 74}) mask[t / 32] |= 1u << t % 32;
  std::vector<double> expected = softmax(logits);
  for (int t = 0; t < kVocab; ++t)
    if (!(mask[t / 32] >> t % 32 & 1)) expected[t] = 0;
  normalise(expected);
  expect_distribution(logits, {}, expected, mask);
  SamplingParams greedy;
  greedy.temperature = 0, greedy.n_logprobs = 3;
  std::vector<float> scratch = logits;
  const Sampled s = Sampler(kVocab).sample(scratch, {.params = greedy, .allowed = mask});
  EXPECT_EQ(s.token, std::max_element(expected.begin(), expected.end()) - expected.begin());
  EXPECT_NEAR(s.logprob, std::log(softmax(logits)[s.token]), 1e-5);
  mask = {1, 0, 0};
  const std::vector<int32_t> banned = {0};
  scratch = logits;
  EXPECT_THROW(Sampler(kVocab).sample(scratch, {.params = greedy, .banned = banned, .allowed = mask}), Error);
}

TEST(SamplersTogether, SwitchingOneOnLeavesTheDrawsOfTheOthersRepeatable) {
  SamplingParams params;
  params.dry_multiplier = 0.8f, params.xtc_probability = 0.5f, params.top_n_sigma = 2, params.dynatemp_range = 0.5f, params.top_p = 0.9f;
  const std::vector<int32_t> history = {1, 2, 3, 1, 2, 3, 1, 2};
  Sampler used(200);
  for (int i = 0; i < 100; ++i) {
    std::vector<float> a = random_logits(200, i), b = a;
    const SampleInput input{.params = params, .history = history, .n_prompt = 2, .seed = 4, .counter = uint64_t(i)};
    EXPECT_EQ(used.sample(a, input).token, Sampler(200).sample(b, input).token);
  }
}

}  // namespace
}  // namespace ridge
