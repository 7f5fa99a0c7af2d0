#include "sequence/token_counts.h"

#include <algorithm>
#include <utility>

namespace ridge {

std::span<const TokenCount> TokenCounts::follow(std::span<const int32_t> tokens, int n_prompt, int first_recent, const Biases& biases) {
  const int n = int(tokens.size());
  if (n < n_counted_ || first_recent < first_recent_) *this = {};            // it has gone back: from the beginning
  if (!std::exchange(has_biases_, true))
    for (const auto& [token, bias] : biases) counts_[place_of(token)].bias = bias;
  for (int i = first_recent_; i < std::min(first_recent, n_counted_); ++i) forget(tokens[i]);
  for (int i = n_counted_; i < n; ++i)
    if (i >= n_prompt || i >= first_recent) add(tokens[i], i >= n_prompt, i >= first_recent);
  n_counted_ = n;
  first_recent_ = first_recent;
  return counts_;
}

int TokenCounts::place_of(int32_t token) {
  const auto [it, is_new] = places_.try_emplace(token, int(counts_.size()));
  if (is_new) {
    counts_.push_back({.token = token});
    n_recent_.push_back(0);
  }
  return it->second;
}

void TokenCounts::add(int32_t token, bool is_generated, bool is_recent) {
  const int place = place_of(token);
  TokenCount& count = counts_[place];
  if (is_generated) count.n_generated++;
  if (!is_recent) return;
  count.is_recent = 1;
  n_recent_[place]++;
}

void TokenCounts::forget(int32_t token) {
  const int place = places_.at(token);
  TokenCount& count = counts_[place];
  if (--n_recent_[place] > 0) return;
  count.is_recent = 0;
  if (count.n_generated > 0 || count.bias != 0.0f) return;
  places_[counts_.back().token] = place;                                     // the last one takes its place
  places_.erase(token);
  count = counts_.back(), counts_.pop_back();
  n_recent_[place] = n_recent_.back(), n_recent_.pop_back();
}

}  // namespace ridge
