#include "sample/weights.h"

#include <algorithm>
#include <cmath>

namespace ridge {

double weigh(std::vector<double>& weights, std::vector<double>& sums, std::span<const float> logits, float largest, double sharpness, const WeighLimits& limits) {
  const size_t n = logits.size();
  weights.resize(n);
  sums.clear();
  double total = 0;
  for (size_t first = 0; first < n; first += kWeighed) {
    double sum = 0;
    for (size_t i = first; i < std::min<size_t>(n, first + kWeighed); ++i) {
      const double weight = weight_of(logits[i], largest, sharpness);
      sum += weights[i] = logits[i] >= limits.least && weight >= limits.lightest ? weight : 0.0;
    }
    total += sums.emplace_back(sum);
  }
  return total;
}

double log_sum_exp(std::span<const float> logits, float largest) {
  double sum = 0;
  for (const float x : logits) sum += weight_of(x, largest, 1.0);
  return largest + std::log(sum);
}

double weight_of(float logit, float largest, double sharpness) { return std::exp((double(logit) - largest) * sharpness); }

}  // namespace ridge
