#include "backend/host_peaks.h"

#include <algorithm>
#include <cmath>

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
  for (int r = 0; r < step.n_logits(); ++r) found_[turn_][r] = peak_of(logits_.f32(r), logits_.cols);
}

void HostPeaks::waited() {
  if (!logits_) return;
  CHECK_GT(n_under_way_, 0);
  const int turn = n_under_way_ == 2 ? 1 - turn_ : turn_;
  std::copy(found_[turn].begin(), found_[turn].end(), shown_.begin());
  n_under_way_--;
}

}  // namespace ridge
