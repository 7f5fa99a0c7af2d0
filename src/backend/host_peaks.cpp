#include "backend/host_peaks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "backend/draw.h"
#include "base/check.h"

namespace ridge {
namespace {

Peak peak_of(const float* row, int64_t n) {
  Peak peak{0, row[0]};
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(row[i])) return {-1, 0.0f};
    if (row[i] > peak.logit) peak = {static_cast<int32_t>(i), row[i]};
  }
  return peak;
}

// The places of the n largest, likeliest first.
std::vector<int32_t> places_of_largest(const float* row, int64_t n_vocab, int64_t n) {
  std::vector<int32_t> order(static_cast<size_t>(n_vocab));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
  order.resize(static_cast<size_t>(n));
  return order;
}

// What a Draw means, or -1: left open (draw.h). As a device does it, from no more than TopLogits::kMost of the largest, and the weight of all where they are not all.
int32_t token_drawn(const float* row, int64_t n_vocab, float largest, const Draw& draw) {
  const auto distance = [&](int64_t i) { return (double(row[i]) - double(largest)) * draw.sharpness; };
  if (draw.in_order_of_tokens()) {
    double total = 0;
    for (int64_t i = 0; i < n_vocab; ++i) {
      const double weight = std::exp(distance(i));
      const int kept = is_kept(weight, distance(i), draw.min_p);
      if (kept < 0) return -1;
      if (kept) total += weight;
    }
    const double wanted = draw.u * total, slack = kDrawSlack * total;
    double up_to = 0;
    for (int64_t i = 0; i < n_vocab; ++i) {
      const double weight = std::exp(distance(i)), before = up_to;
      if (is_kept(weight, distance(i), draw.min_p)) up_to += weight;
      if (up_to > wanted) return wanted - before > slack && up_to - wanted > slack ? static_cast<int32_t>(i) : -1;
    }
    return -1;
  }
  CHECK(draw.top_k >= 0 && draw.top_k <= TopLogits::kMost);
  const std::vector<int32_t> listed = places_of_largest(row, n_vocab, std::min<int64_t>(n_vocab, draw.top_k > 0 ? draw.top_k : TopLogits::kMost));
  std::vector<double> up_to;
  SortedWeights weights{.up_to = nullptr, .n_listed = int(listed.size()), .n_kept = 0, .is_all = draw.top_k > 0 || int64_t(listed.size()) == n_vocab, .total = 0};
  for (const int32_t i : listed) {
    const double weight = std::exp(distance(i));
    const int kept = is_kept(weight, distance(i), draw.min_p);
    if (kept < 0) return -1;
    weights.n_kept += kept;
    up_to.push_back(weights.total += weight);
  }
  weights.up_to = up_to.data();
  if (!weights.is_all) {
    weights.total = 0;
    for (int64_t i = 0; i < n_vocab; ++i) weights.total += std::exp(distance(i));
  }
  const int place = place_drawn(weights, draw);
  return place < 0 ? -1 : listed[size_t(place)];
}

Score score_of(const float* row, int64_t n_vocab, int32_t token, int n_logprobs) {
  double sum = 0;
  for (int64_t i = 0; i < n_vocab; ++i) sum += std::exp(double(row[i]) - double(row[token]));
  Score score{.log_sum = double(row[token]) + std::log(sum), .logit = row[token], .top = {}};
  if (n_logprobs == 0) return score;
  const std::vector<int32_t> listed = places_of_largest(row, n_vocab, std::min<int64_t>(n_vocab, TopLogits::kMost));
  for (const int32_t i : listed) score.top.top[score.top.n_found++] = {i, row[i]};
  return score;
}

// A row's penalties (step.h); what they change goes to `before` as it was.
void penalise(std::vector<Peak>& before, float* row, const Step& step, int logit_row) {
  const Penalties& p = step.draw_of()[logit_row].penalties;
  int32_t own = p.counts_own ? step.tokens()[step.logit_rows()[logit_row]] : -1;
  const auto change = [&](int32_t token, float bias, bool is_recent, int n_generated) {
    before.push_back({token, row[token]});
    if (bias != 0.0f) row[token] += bias;
    row[token] = penalised(row[token], p, is_recent, n_generated);
  };
  before.clear();
  for (const TokenCount& count : step.counts().subspan(size_t(p.first_count), size_t(p.n_counts))) {
    const bool is_own = count.token == own;
    change(count.token, count.bias, count.is_recent || is_own, int(count.n_generated) + is_own);
    if (is_own) own = -1;
  }
  if (own >= 0) change(own, 0.0f, true, 1);
}

}  // namespace

const Peak* HostPeaks::watch(const Tensor& logits) {
  CHECK(!logits_);
  logits_ = logits;
  for (auto& found : found_) found.resize(static_cast<size_t>(logits.rows));
  shown_.resize(static_cast<size_t>(logits.rows));
  return shown_.data();
}

const Step& HostPeaks::resolve(const Step& step) {
  const auto refers = [](int32_t token) { return token < 0; };
  const auto tokens = step.tokens();
  if (!logits_ || std::none_of(tokens.begin(), tokens.end(), refers)) return step;
  resolved_ = step;
  for (int row = 0; row < step.n_tokens(); ++row)
    if (refers(tokens[row])) resolved_->set_token(row, std::max(0, found_[turn_].at(static_cast<size_t>(-1 - tokens[row])).token));
  return *resolved_;
}

void HostPeaks::submitted(const Step& step) {
  if (!logits_) return;
  CHECK_LT(n_under_way_, 2);
  n_under_way_++;
  turn_ = 1 - turn_;
  scores_[turn_].assign(step.scores() ? size_t(step.n_logits()) : 0, {});
  if (step.waits()) waits_ = &step;
  else choose(step, {});
}

void HostPeaks::give_masks(Backend::Masks masks) {
  CHECK(waits_);
  choose(*std::exchange(waits_, nullptr), masks);
}

void HostPeaks::choose(const Step& step, Backend::Masks masks) {
  for (int r = 0; r < step.n_logits(); ++r) {
    float* const row = logits_.f32(r);
    const std::span<const uint32_t> allowed = step.draw_of()[r].masked ? masks[size_t(r)] : std::span<const uint32_t>{};
    if (!allowed.empty()) unmasked_.assign(row, row + logits_.cols);
    for (int64_t i = 0; !allowed.empty() && i < logits_.cols; ++i)
      if (!(allowed[size_t(i / 32)] >> i % 32 & 1)) row[i] = -INFINITY;
    penalise(unpenalised_, row, step, r);
    Peak& peak = found_[turn_][r] = peak_of(row, logits_.cols);
    if (const Draw& draw = step.draw_of()[r]; draw.any() && peak.token >= 0) {
      const int32_t token = token_drawn(row, logits_.cols, peak.logit, draw);
      peak = token < 0 ? Peak{-1, 0.0f} : Peak{token, row[token]};
    }
    for (const Peak& was : unpenalised_) row[was.token] = was.logit;
    if (!allowed.empty()) std::copy(unmasked_.begin(), unmasked_.end(), row);
    const Draw& draw = step.draw_of()[r];
    const int32_t token = draw.scored >= 0 ? draw.scored : peak.token;
    if (draw.scores() && token >= 0) scores_[turn_][size_t(r)] = score_of(row, logits_.cols, token, draw.n_logprobs);
  }
}

void HostPeaks::waited() {
  if (!logits_) return;
  CHECK_GT(n_under_way_, 0);
  const int turn = n_under_way_ == 2 ? 1 - turn_ : turn_;
  std::copy(found_[turn].begin(), found_[turn].end(), shown_.begin());
  shown_scores_ = scores_[turn];
  n_under_way_--;
}

}  // namespace ridge
