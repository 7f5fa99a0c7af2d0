#include "sample/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sample/random_logits.h"

namespace ridge {
namespace {

TEST(Weights, WeighNothingUnderTheLimitsAndAddUp) {
  for (const int n : {1, 2, 15, 1023, 1024, 1025, 5001}) {
    std::vector<float> logits = random_logits(n, uint32_t(n));
    for (int i = 3; i < n; i += 7) logits[size_t(i)] = -INFINITY;
    const float largest = *std::max_element(logits.begin(), logits.end());
    for (const auto& limits : {WeighLimits{-INFINITY, 0}, WeighLimits{-1.0f, 0}, WeighLimits{-INFINITY, 0.01}}) {
      std::vector<double> weights, sums;
      const double total = weigh(weights, sums, logits, largest, 0.7, limits);
      ASSERT_EQ(weights.size(), size_t(n));
      ASSERT_EQ(sums.size(), size_t((n + kWeighed - 1) / kWeighed));
      double expected = 0;
      for (int i = 0; i < n; ++i) {
        const double weight = std::exp((double(logits[size_t(i)]) - largest) * 0.7);
        if (logits[size_t(i)] < limits.least || weight < limits.lightest) {
          ASSERT_EQ(weights[size_t(i)], 0.0) << n << ", " << i;
          continue;
        }
        ASSERT_NEAR(weights[size_t(i)], weight, 1e-15 * weight) << n << ", " << i;
        expected += weight;
      }
      EXPECT_NEAR(total, expected, 1e-12 * expected);
      EXPECT_NEAR(log_sum_exp(logits, largest), largest + std::log([&] {
                    double sum = 0;
                    for (const float x : logits) sum += std::exp(double(x) - largest);
                    return sum;
                  }()), 1e-12);
    }
  }
}

}  // namespace
}  // namespace ridge
