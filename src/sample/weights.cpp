#include "sample/weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace ridge {
namespace {

// What every 64-bit machine has registers for; with wider vectors gcc compares number by number.
constexpr int kPair = 2;
typedef double Doubles __attribute__((vector_size(8 * kPair)));
typedef int64_t Ints __attribute__((vector_size(8 * kPair)));

// exp(x) = 2^n exp(r) with |r| <= ln(2) / 2: a power series up to r^12, whose rest is 1.7e-16 of it. n is what is left in the low bits of a number so large that it has no fraction.
inline Doubles exponential(const Doubles& x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0x1.62e42fefa0000p-1, kLn2Low = 0x1.cf79abc9e3b3ap-40, kNoFraction = 0x1.8p52, kLeast = -708;
  const Doubles clamped = x > kLeast ? x : Doubles{} + kLeast;
  const Doubles shifted = clamped * kLog2E + kNoFraction, n = shifted - kNoFraction, r = (clamped - n * kLn2High) - n * kLn2Low;
  Doubles e = r * (1.0 / 479001600) + 1.0 / 39916800;
  e = e * r + 1.0 / 3628800, e = e * r + 1.0 / 362880, e = e * r + 1.0 / 40320, e = e * r + 1.0 / 5040, e = e * r + 1.0 / 720;
  e = e * r + 1.0 / 120, e = e * r + 1.0 / 24, e = e * r + 1.0 / 6, e = e * r + 1.0 / 2, e = e * r + 1.0, e = e * r + 1.0;
  const Ints scale = ((Ints)shifted << 52) + (int64_t{1023} << 52);
  return x > kLeast ? e * (Doubles)scale : Doubles{};
}

struct Weigher {
  double largest, sharpness;
  WeighLimits limits;
  Doubles operator()(const float* logits) const {
    const Doubles x{logits[0], logits[1]}, weights = exponential((x - largest) * sharpness);
    return ((weights >= limits.lightest) & (x >= double(limits.least))) ? weights : Doubles{};
  }
};

}  // namespace

double weigh(std::vector<double>& weights, std::vector<double>& sums, std::span<const float> logits, float largest, double sharpness, const WeighLimits& limits) {
  const Weigher weigher{largest, sharpness, limits};
  const size_t n = logits.size();
  weights.resize(n);
  sums.clear();
  double total = 0;
  for (size_t first = 0; first < n; first += kWeighed) {
    const size_t last = std::min<size_t>(n, first + kWeighed);
    Doubles sum{};
    size_t i = first;
    for (; i + kPair <= last; i += kPair) {
      const Doubles some = weigher(&logits[i]);
      std::memcpy(&weights[i], &some, sizeof some);
      sum += some;
    }
    if (i < last) {
      const float rest[kPair] = {logits[i], -INFINITY};
      weights[i] = weigher(rest)[0];
      sum[0] += weights[i];
    }
    total += sums.emplace_back(sum[0] + sum[1]);
  }
  return total;
}

double log_sum_exp(std::span<const float> logits, float largest) {
  double sum = 0;
  std::vector<double> weights, sums;
  for (size_t first = 0; first < logits.size(); first += kWeighed)
    sum += weigh(weights, sums, logits.subspan(first, std::min<size_t>(kWeighed, logits.size() - first)), largest, 1.0, {.least = -INFINITY, .lightest = 0});
  return largest + std::log(sum);
}

double exponential(double x) { return exponential(Doubles{} + x)[0]; }

}  // namespace ridge
