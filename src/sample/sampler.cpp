#include "sample/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace ridge {
namespace {

// Keeps the shortest prefix in ascending order whose weights reach `mass`, at least one. Sorts no further than that prefix, in growing portions.
template <class Candidate>
void keep_mass(std::vector<Candidate>& candidates, double mass) {
  const auto less = [](const Candidate& a, const Candidate& b) { return a.order < b.order || (a.order == b.order && a.token < b.token); };
  double sum = 0;
  size_t n_sorted = 0, portion = 64;
  while (n_sorted < candidates.size()) {
    const size_t next = std::min(candidates.size(), n_sorted + portion);
    const auto first = candidates.begin() + n_sorted, last = candidates.begin() + next;
    if (next < candidates.size()) std::nth_element(first, last, candidates.end(), less);
    std::sort(first, last, less);
    for (; n_sorted < next; ++n_sorted) {
      sum += candidates[n_sorted].weight;
      if (sum >= mass) {
        candidates.resize(n_sorted + 1);
        return;
      }
    }
    portion *= 8;
  }
}

template <class Candidate>
double total_of(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& c : candidates) total += c.weight;
  return total;
}

double log_sum_exp(std::span<const float> logits, float largest) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x) - largest);
  return largest + std::log(sum);
}

}  // namespace

Sampler::Sampler(int n_vocab) : counts_(n_vocab, 0) {}

Sampled Sampler::sample(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> history, int n_prompt, uint64_t seed,
                        uint64_t counter, std::span<const int32_t> banned) {
  CHECK_EQ(logits.size(), counts_.size());
  if (params.n_logprobs >= 0) raw_.assign(logits.begin(), logits.end());
  adjust(logits, params, history, n_prompt, banned);
  const Largest largest = find_largest(logits);
  if (largest.token < 0) fail("the model's logits are not numbers (NaN): its weights are damaged, or a number overflowed on the way");
  if (largest.logit == INFINITY) fail("a logit of the model is infinite: its weights are damaged, or a number overflowed on the way");
  if (largest.logit == -INFINITY) fail("no token may be chosen: logit_bias or min_tokens ban all of them");

  Sampled sampled{.token = largest.token};
  if (params.temperature > 0 && params.top_k != 1) sampled.token = draw(logits, params, largest.logit, uniform(seed, counter));
  if (params.n_logprobs >= 0) report_logprobs(sampled, params.n_logprobs);
  return sampled;
}

void Sampler::adjust(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> history, int n_prompt, std::span<const int32_t> banned) {
  for (const auto& [token, bias] : params.logit_bias) {
    CHECK(token >= 0 && size_t(token) < logits.size());
    logits[token] += bias;
  }
  for (const int32_t token : banned) logits[token] = -INFINITY;

  if (params.repetition_penalty != 1.0f) {
    const size_t n = params.penalty_last_n < 0 ? history.size() : std::min(history.size(), size_t(params.penalty_last_n));
    const std::span<const int32_t> seen = history.last(n);
    for (const int32_t token : seen) {
      if (counts_[token]++ > 0) continue;
      float& x = logits[token];
      x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    }
    for (const int32_t token : seen) counts_[token] = 0;
  }
  if (params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f) {
    const std::span<const int32_t> generated = history.subspan(n_prompt);
    for (const int32_t token : generated) counts_[token]++;
    for (const int32_t token : generated) {
      if (counts_[token] == 0) continue;
      logits[token] -= params.presence_penalty + params.frequency_penalty * float(counts_[token]);
      counts_[token] = 0;
    }
  }
}

int32_t Sampler::draw(std::span<const float> logits, const SamplingParams& params, float largest, double u) {
  const double sharpness = 1.0 / params.temperature;
  const auto weigh = [&](float logit) { return std::exp((double(logit) - largest) * sharpness); };    // the likeliest weighs 1
  const bool typical = params.typical_p < 1.0f, nucleus = params.top_p < 1.0f;

  candidates_.clear();
  if (params.top_k > 0 && size_t(params.top_k) < logits.size()) {
    select_top_k(buffer_, logits, params.top_k);
    for (const TokenLogprob& t : buffer_) candidates_.push_back({t.token, 0, weigh(t.logprob)});
  } else {
    for (size_t i = 0; i < logits.size(); ++i) candidates_.push_back({int32_t(i), 0, weigh(logits[i])});
  }

  if (typical) {
    const double total = total_of(candidates_);
    double entropy = 0;
    std::erase_if(candidates_, [](const Candidate& c) { return c.weight == 0; });
    for (const Candidate& c : candidates_) entropy -= c.weight / total * std::log(c.weight / total);
    for (Candidate& c : candidates_) c.order = std::abs(-std::log(c.weight / total) - entropy);
    keep_mass(candidates_, params.typical_p * total);
  }
  if (nucleus) {
    const double total = total_of(candidates_);
    // All tokens below (1 - top_p) / n hold less than 1 - top_p together: the likeliest that reach top_p are among the others.
    const double least = total * (1.0 - params.top_p) / double(candidates_.size());
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < least; });
    for (Candidate& c : candidates_) c.order = -c.weight;
    keep_mass(candidates_, params.top_p * total);
  }
  if (params.min_p > 0.0f) {
    double most = 0;                         // typical may have dropped the likeliest
    for (const Candidate& c : candidates_) most = std::max(most, c.weight);
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < most * params.min_p; });
  }

  double left = u * total_of(candidates_);
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.token;
  }
  // u * total was rounded up to the total: the last that can be drawn at all.
  return std::find_if(candidates_.rbegin(), candidates_.rend(), [](const Candidate& c) { return c.weight > 0; })->token;
}

void Sampler::report_logprobs(Sampled& sampled, int n_logprobs) const {
  const Largest largest = find_largest(raw_);
  if (largest.token < 0) fail("the model's logits are not numbers (NaN): its weights are damaged, or a number overflowed on the way");
  const double norm = log_sum_exp(raw_, largest.logit);
  sampled.logprob = float(raw_[sampled.token] - norm);
  if (n_logprobs == 0) return;
  select_top_k(sampled.top, raw_, n_logprobs);
  for (TokenLogprob& t : sampled.top) t.logprob = float(double(t.logprob) - norm);
}

}  // namespace ridge
