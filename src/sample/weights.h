// What logits weigh: exp((logit - largest) * sharpness), so that the likeliest weighs 1.
#pragma once
#include <span>
#include <vector>

namespace ridge {

double weight_of(float logit, float largest, double sharpness);

inline constexpr int kWeighed = 1024;                  // a sum for each so many

// `least`: logits under it weigh nothing, as does whatever would weigh less than `lightest`. Fills weights [n] and sums [ceil(n / kWeighed)]; returns the sum of sums.
struct WeighLimits { float least; double lightest; };
double weigh(std::vector<double>& weights, std::vector<double>& sums, std::span<const float> logits, float largest, double sharpness, const WeighLimits& limits);

// log(sum of exp(logit)).
double log_sum_exp(std::span<const float> logits, float largest);

}  // namespace ridge
