#include "sample/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "sample/weights.h"

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

constexpr const char* kNotNumbers = "the model's logits are not numbers (NaN): its weights are damaged, or a number overflowed on the way";

void forbid(std::span<float> logits, std::span<const uint32_t> allowed) {
  CHECK_GE(allowed.size() * 32, logits.size());
  for (size_t first = 0; first < logits.size(); first += 32) {
    const uint32_t word = allowed[first / 32];
    if (word == ~0u) continue;
    const size_t n = std::min<size_t>(32, logits.size() - first);
    for (size_t i = 0; i < n; ++i)
      if (!(word >> i & 1)) logits[first + i] = -INFINITY;
  }
}

// top-n-sigma: the least logit that stays, n standard deviations under the largest. Banned tokens count nowhere.
float sigma_floor(std::span<const float> logits, float n_sigma, float largest) {
  double n = 0, sum = 0, squares = 0;
  for (const float x : logits)
    if (x != -INFINITY) n += 1, sum += double(x) - largest, squares += (double(x) - largest) * (double(x) - largest);
  const double mean = sum / n;
  return float(largest - n_sigma * std::sqrt(std::max(0.0, squares / n - mean * mean)));
}

}  // namespace

Sampler::Sampler(int n_vocab) : counts_(n_vocab, 0), places_(n_vocab, 0) {}

Sampled Sampler::sample(std::span<float> logits, const SampleInput& input) {
  CHECK_EQ(logits.size(), counts_.size());
  const SamplingParams& params = input.params;
  if (params.n_logprobs >= 0) raw_.assign(logits.begin(), logits.end());
  adjust(logits, input);
  const Largest largest = find_largest(logits);
  if (largest.token < 0) fail("{}", kNotNumbers);
  if (largest.logit == INFINITY) fail("a logit of the model is infinite: its weights are damaged, or a number overflowed on the way");
  if (largest.logit == -INFINITY) {
    if (!input.allowed.empty()) fail("no token may be chosen: what the grammar allows next, logit_bias or min_tokens (here {}) ban", params.min_tokens);
    fail("no token may be chosen: logit_bias or min_tokens ban all of them");
  }
  int32_t token = largest.token;
  if (!params.greedy()) token = params.mirostat ? draw_mirostat(logits, input, largest.logit) : draw(logits, input, largest.logit);
  if (params.n_logprobs < 0) return {.token = token};
  return score_of(raw_, token, params.n_logprobs);
}

void Sampler::adjust(std::span<float> logits, const SampleInput& input) {
  const SamplingParams& params = input.params;
  for (const auto& [token, bias] : params.logit_bias) {
    CHECK(token >= 0 && size_t(token) < logits.size());
    logits[token] += bias;
  }
  for (const int32_t token : input.banned) logits[token] = -INFINITY;
  if (!input.allowed.empty()) forbid(logits, input.allowed);

  penalise([&](int32_t token) { return &logits[token]; }, input);
  if (params.dry_multiplier > 0.0f) penalise_repetitions(logits, params, input.history);
}

template <class At>
void Sampler::penalise(const At& at, const SampleInput& input) {
  const SamplingParams& params = input.params;
  const Penalties penalties = params.penalties();
  if (penalties.repetition != 1.0f) {
    const size_t n = params.penalty_last_n < 0 ? input.history.size() : std::min(input.history.size(), size_t(params.penalty_last_n));
    const std::span<const int32_t> seen = input.history.last(n);
    for (const int32_t token : seen) {
      if (counts_[token]++ > 0) continue;
      if (float* const x = at(token)) *x = penalised(*x, penalties, true, 0);
    }
    for (const int32_t token : seen) counts_[token] = 0;
  }
  if (penalties.presence != 0.0f || penalties.frequency != 0.0f) {
    const std::span<const int32_t> generated = input.history.subspan(input.n_prompt);
    for (const int32_t token : generated) counts_[token]++;
    for (const int32_t token : generated) {
      if (counts_[token] == 0) continue;
      if (float* const x = at(token)) *x = penalised(*x, penalties, false, counts_[token]);
      counts_[token] = 0;
    }
  }
}

bool Sampler::top_may_decide(const SamplingParams& p, int n_top) {
  return (p.greedy() || (p.top_k > 0 && p.top_k <= n_top && p.mirostat == 0 && p.top_n_sigma <= 0.0f)) && p.n_logprobs < 0 && p.logit_bias.empty() && p.dry_multiplier == 0.0f &&
         p.repetition_penalty >= 1.0f && p.presence_penalty >= 0.0f && p.frequency_penalty >= 0.0f;
}

// What is not among them is at most as large as the last of them, and penalties and bans only lower: those that stay above it are the largest of all.
std::optional<Sampled> Sampler::sample_top(std::span<const TokenLogprob> top, const SampleInput& input) {
  const SamplingParams& params = input.params;
  const size_t n_needed = params.greedy() ? 1 : size_t(params.top_k);
  if (!top_may_decide(params, int(top.size())) || !input.allowed.empty() || top.empty() || !std::isfinite(top.front().logprob)) return std::nullopt;
  if (!params.greedy() && n_needed >= counts_.size()) return std::nullopt;      // no cut at all: drawn in the order of tokens
  const bool is_all = top.size() == counts_.size();
  const float floor = top.back().logprob;
  buffer_.assign(top.begin(), top.end());
  for (size_t i = 0; i < buffer_.size(); ++i) places_[buffer_[i].token] = int32_t(i) + 1;
  const auto at = [&](int32_t token) { return places_[token] > 0 ? &buffer_[places_[token] - 1].logprob : nullptr; };
  for (const int32_t token : input.banned)
    if (float* const x = at(token)) *x = -INFINITY;
  penalise(at, input);
  for (const TokenLogprob& t : top) places_[t.token] = 0;
  std::sort(buffer_.begin(), buffer_.end(), [](const TokenLogprob& a, const TokenLogprob& b) { return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token); });
  if (!is_all && (n_needed > buffer_.size() || !(buffer_[n_needed - 1].logprob > floor))) return std::nullopt;
  const float largest = buffer_.front().logprob;
  if (!std::isfinite(largest)) return std::nullopt;
  if (params.greedy()) return Sampled{.token = buffer_.front().token};
  gather_top(std::span(buffer_).first(std::min(n_needed, buffer_.size())), -INFINITY, largest, params.dynatemp_range > 0.0f ? 1.0 : 1.0 / params.temperature);
  return Sampled{.token = draw_gathered(input, total_of(candidates_))};
}

void Sampler::gather(std::span<const float> logits, int top_k, float least, float largest, double sharpness) {
  if (top_k > 0 && size_t(top_k) < logits.size()) {
    select_top_k(buffer_, logits, top_k);
    return gather_top(buffer_, least, largest, sharpness);
  }
  weigh(weights_, sums_, logits, largest, sharpness, {.least = least, .lightest = 0});
  gather_weighed(0);
}

void Sampler::gather_weighed(double lightest) {
  candidates_.clear();
  for (size_t i = 0; i < weights_.size(); ++i)
    if (weights_[i] > 0.0 && weights_[i] >= lightest) candidates_.push_back({int32_t(i), 0, weights_[i]});
}

void Sampler::gather_top(std::span<const TokenLogprob> top, float least, float largest, double sharpness) {
  candidates_.clear();
  for (const TokenLogprob& t : top)
    if (t.logprob >= least && t.logprob != -INFINITY) candidates_.push_back({t.token, 0, weight_of(t.logprob, largest, sharpness)});
}

int32_t Sampler::draw(std::span<const float> logits, const SampleInput& input, float largest) {
  const SamplingParams& params = input.params;
  const float least = params.top_n_sigma > 0.0f ? sigma_floor(logits, params.top_n_sigma, largest) : -INFINITY;
  const bool typical = params.typical_p < 1.0f, nucleus = params.top_p < 1.0f, late = params.xtc_probability > 0.0f || params.dynatemp_range > 0.0f;
  const double sharpness = params.dynatemp_range > 0.0f ? 1.0 : 1.0 / params.temperature;
  if ((params.top_k > 0 && size_t(params.top_k) < logits.size()) || typical || (late && !nucleus)) {
    gather(logits, params.top_k, least, largest, sharpness);
    return draw_gathered(input, total_of(candidates_));
  }
  // Nobody need gather a whole vocabulary: a draw from all walks over their sums, and the likeliest that reach top_p of the weight are not among those that weigh less than
  // (1 - top_p) / n of it, which hold less than 1 - top_p together.
  const double total = weigh(weights_, sums_, logits, largest, sharpness, {.least = least, .lightest = nucleus ? 0.0 : double(params.min_p)});
  if (!nucleus) return pick_in_order(uniform(input.seed, input.counter) * total);
  gather_weighed(total * (1.0 - params.top_p) / double(logits.size()));
  return draw_gathered(input, total);
}

int32_t Sampler::draw_gathered(const SampleInput& input, double total) {
  const SamplingParams& params = input.params;
  const bool typical = params.typical_p < 1.0f, nucleus = params.top_p < 1.0f, heated_late = params.dynatemp_range > 0.0f;
  if (typical) {
    double entropy = 0;
    std::erase_if(candidates_, [](const Candidate& c) { return c.weight == 0; });
    for (const Candidate& c : candidates_) entropy -= c.weight / total * std::log(c.weight / total);
    for (Candidate& c : candidates_) c.order = std::abs(-std::log(c.weight / total) - entropy);
    keep_mass(candidates_, params.typical_p * total);
    total = total_of(candidates_);
  }
  if (nucleus) {
    for (Candidate& c : candidates_) c.order = -c.weight;
    keep_mass(candidates_, params.top_p * total);
  }
  if (params.min_p > 0.0f) {
    double most = 0;                         // typical may have dropped the likeliest
    for (const Candidate& c : candidates_) most = std::max(most, c.weight);
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < most * params.min_p; });
  }
  // A stream of its own: whether XTC is on does not change what is drawn when it has nothing to say.
  if (params.xtc_probability > 0.0f && uniform(input.seed, input.counter, 1) < params.xtc_probability) exclude_top_choices(params);
  if (heated_late) heat_by_entropy(params);
  return candidates_[pick(uniform(input.seed, input.counter))].token;
}

// Of the tokens at or over the threshold all go but the least likely, so that a sensible one is left.
void Sampler::exclude_top_choices(const SamplingParams& params) {
  const double threshold = params.xtc_threshold * total_of(candidates_);
  const Candidate* last = nullptr;
  int n_over = 0;
  for (const Candidate& c : candidates_) {
    if (c.weight < threshold) continue;
    n_over++;
    if (!last || c.weight < last->weight || (c.weight == last->weight && c.token > last->token)) last = &c;
  }
  if (n_over < 2) return;
  const int32_t stays = last->token;
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight >= threshold && c.token != stays; });
}

// T = low + (high - low) * (entropy / its most)^exponent
void Sampler::heat_by_entropy(const SamplingParams& params) {
  if (candidates_.size() < 2) return;
  const double total = total_of(candidates_), low = std::max(0.0f, params.temperature - params.dynatemp_range), high = params.temperature + params.dynatemp_range;
  double entropy = 0, most = 0;
  for (const Candidate& c : candidates_) {
    if (c.weight > 0) entropy -= c.weight / total * std::log(c.weight / total);
    most = std::max(most, c.weight);
  }
  const double share = std::clamp(entropy / std::log(double(candidates_.size())), 0.0, 1.0);
  const double temperature = low + (high - low) * std::pow(share, double(params.dynatemp_exponent));
  for (Candidate& c : candidates_) c.weight = c.weight == most ? 1.0 : std::pow(c.weight / most, 1.0 / std::max(temperature, 1e-9));
}

int32_t Sampler::pick_in_order(double left) const {
  const auto n = int64_t(weights_.size());
  for (int64_t first = 0; first < n; first += kWeighed) {
    const double sum = sums_[size_t(first / kWeighed)];
    if (left >= sum) {
      left -= sum;
      continue;
    }
    for (int64_t i = first; i < std::min(n, first + kWeighed); ++i)
      if ((left -= weights_[size_t(i)]) < 0) return int32_t(i);
    left = 0;                                // rounded down past its end
  }
  const auto last = std::find_if(weights_.rbegin(), weights_.rend(), [](double w) { return w > 0; });
  return int32_t(weights_.rend() - last) - 1;
}

size_t Sampler::pick(double u) const {
  double left = u * total_of(candidates_);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    left -= candidates_[i].weight;
    if (left < 0) return i;
  }
  // u * total was rounded up to the total: the last that can be drawn at all.
  const auto last = std::find_if(candidates_.rbegin(), candidates_.rend(), [](const Candidate& c) { return c.weight > 0; });
  return size_t(candidates_.rend() - last) - 1;
}

Sampled score_of(std::span<const float> logits, int32_t token, int n_logprobs) {
  const Largest largest = find_largest(logits);
  if (largest.token < 0) fail("{}", kNotNumbers);
  const double norm = log_sum_exp(logits, largest.logit);
  Sampled sampled{.token = token, .logprob = float(logits[token] - norm)};
  if (n_logprobs <= 0) return sampled;
  select_top_k(sampled.top, logits, n_logprobs);
  for (TokenLogprob& t : sampled.top) t.logprob = float(double(t.logprob) - norm);
  return sampled;
}

std::optional<Sampled> score_of(const Score& score, int32_t token, int n_logprobs) {
  if (!std::isfinite(score.log_sum) || !std::isfinite(score.logit)) return std::nullopt;
  Sampled sampled{.token = token, .logprob = float(score.logit - score.log_sum)};
  if (n_logprobs <= 0) return sampled;
  if (score.top.n_found < n_logprobs) return std::nullopt;
  for (const Peak& likely : std::span(score.top.top).first(size_t(n_logprobs))) sampled.top.push_back({likely.token, float(likely.logit - score.log_sum)});
  return sampled;
}

}  // namespace ridge
