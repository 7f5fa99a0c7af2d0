// Logits to choose from.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

namespace ridge {

inline std::vector<float> random_logits(int n, uint32_t seed, float spread = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  return logits;
}

}  // namespace ridge
