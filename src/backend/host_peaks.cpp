#include "backend/host_peaks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

TopLogits tops_of(const float* row, int64_t n) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const auto n_most = std::min<int64_t>(n, TopLogits::kMost);
  std::partial_sort(order.begin(), order.begin() + n_most, order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
  TopLogits tops{.n_found = static_cast<int32_t>(n_most), .top = {}};
  for (int64_t i = 0; i < n_most; ++i) tops.top[i] = {order[i], row[order[i]]};
  return tops;
}

Peak drawn(const TopLogits& tops, const Draw& draw) {
  std::array<double, TopLogits::kMost> up_to;          // the weight of all up to one
  const int k = std::min(draw.top_k, tops.n_found);
  const auto weight = [&](int i) { return std::exp((double(tops.top[i].logit) - tops.top[0].logit) * draw.sharpness); };
  double sum = 0;
  for (int i = 0; i < k; ++i) up_to[i] = sum += weight(i);
  int n = 1;
  while (n < k && (draw.top_p >= 1.0f || up_to[n - 1] < draw.top_p * sum) && weight(n) >= draw.min_p) n++;
  const double wanted = draw.u * up_to[n - 1];
  int i = 0;
  while (i < n - 1 && up_to[i] <= wanted) i++;
  return tops.top[i];
}

// A row's penalties (step.h); what they change goes to `before` as it was.
void penalise(std::vector<Peak>& before, float* row, const Step& step, int logit_row) {
  const Penalties& p = step.draw_of()[logit_row].penalties;
  int32_t own = p.counts_own ? step.tokens()[step.logit_rows()[logit_row]] : -1;
  const auto change = [&](int32_t token, bool is_recent, int n_generated) {
    before.push_back({token, row[token]});
    row[token] = penalised(row[token], p, is_recent, n_generated);
  };
  before.clear();
  for (const TokenCount& count : step.counts().subspan(size_t(p.first_count), size_t(p.n_counts))) {
    const bool is_own = count.token == own;
    change(count.token, count.is_recent || is_own, int(count.n_generated) + is_own);
    if (is_own) own = -1;
  }
  if (own >= 0) change(own, true, 1);
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
  tops_[turn_].clear();
  for (int r = 0; r < step.n_logits(); ++r) {
    float* const row = logits_.f32(r);
    penalise(unpenalised_, row, step, r);
    Peak& peak = found_[turn_][r] = peak_of(row, logits_.cols);
    if (step.draws()) {
      const TopLogits& tops = tops_[turn_].emplace_back(peak.token < 0 ? TopLogits{.n_found = -1, .top = {}} : tops_of(row, logits_.cols));
      if (step.draw_of()[r].top_k > 0 && tops.n_found > 0) peak = drawn(tops, step.draw_of()[r]);
    }
    for (const Peak& was : unpenalised_) row[was.token] = was.logit;
  }
}

void HostPeaks::waited() {
  if (!logits_) return;
  CHECK_GT(n_under_way_, 0);
  const int turn = n_under_way_ == 2 ? 1 - turn_ : turn_;
  std::copy(found_[turn].begin(), found_[turn].end(), shown_.begin());
  shown_tops_ = tops_[turn];
  n_under_way_--;
}

}  // namespace ridge
