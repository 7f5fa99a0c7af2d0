// Mirostat (Basu et al., "Mirostat: a neural text decoding algorithm that directly controls perplexity"): instead of a fixed cut, one that keeps the surprise of the
// chosen tokens, -log2 p, near tau. Its one number of state, mu, moves by eta times the last error.
//   1  fits Zipf's exponent s to the 100 likeliest and keeps the k tokens whose tail holds mu bits:  k = ((s - 1) 2^mu / (1 - N^(1 - s)))^(1 / s)
//   2  drops every token whose own surprise is more than mu
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sample/sampler.h"

namespace ridge {
namespace {

constexpr int kFitted = 100;

// `likeliest`: descending logits.
int cut_of(const std::vector<TokenLogprob>& likeliest, double sharpness, double mu, size_t n_vocab) {
  double up = 0, down = 0;
  for (size_t i = 0; i + 1 < likeliest.size() && likeliest[i + 1].logprob != -INFINITY; ++i) {
    const double t = std::log(double(i + 2) / double(i + 1)), b = (double(likeliest[i].logprob) - likeliest[i + 1].logprob) * sharpness;
    up += t * b;
    down += t * t;
  }
  if (down == 0) return 1;
  const double s = up / down, e = s - 1;
  // With e near 0 the quotient tends to 1 / ln N.
  const double quotient = std::abs(e) < 1e-9 ? 1.0 / std::log(double(n_vocab)) : e / (1 - std::pow(double(n_vocab), -e));
  const double k = std::pow(quotient * std::exp2(mu), 1 / s);
  return std::isnan(k) ? 1 : int(std::clamp(k, 1.0, double(n_vocab)));
}

}  // namespace

int32_t Sampler::draw_mirostat(std::span<const float> logits, const SampleInput& input, float largest) {
  const SamplingParams& params = input.params;
  CHECK(input.mirostat_mu != nullptr);
  float& mu = *input.mirostat_mu;
  const double sharpness = 1.0 / params.temperature;
  if (params.mirostat == 1) {
    select_top_k(buffer_, logits, std::min(kFitted, int(logits.size())));
    gather(logits, cut_of(buffer_, sharpness, mu, logits.size()), -INFINITY, largest, sharpness);
  } else {
    gather(logits, 0, -INFINITY, largest, sharpness);
    double total = 0;
    for (const Candidate& c : candidates_) total += c.weight;
    const double least = std::min(1.0, std::exp2(-double(mu)) * total);     // the likeliest, which weighs 1, stays
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < least; });
  }
  const Candidate& chosen = candidates_[pick(uniform(input.seed, input.counter))];
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  mu -= params.mirostat_eta * float(-std::log2(chosen.weight / total) - params.mirostat_tau);
  return chosen.token;
}

}  // namespace ridge
