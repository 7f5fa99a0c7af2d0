// A filter of tokens whose wishes are easy to see in an answer.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "text/token_filter.h"

namespace ridge {

// Lets multiples of one number come after multiples of another, n of them; 0 fails.
class Multiples : public TokenFilter {
 public:
  Multiples(int a, int b, int n) : factors_{a, b}, n_left_(n) {}
  bool restrict(std::span<uint32_t> mask) override {
    const int factor = factors_[n_accepted_ % 2];
    if (factor == 0) fail("a filter that fails");
    EXPECT_TRUE(std::all_of(mask.begin(), mask.end(), [](uint32_t w) { return w == ~0u; }));
    if (factor == 1) return false;
    for (size_t t = 0; t < 32 * mask.size(); ++t)
      if (t % size_t(factor)) mask[t / 32] &= ~(1u << t % 32);
    return true;
  }
  void accept(int32_t token) override {
    EXPECT_EQ(token % factors_[n_accepted_ % 2], 0);
    n_accepted_++, n_left_--;
  }
  bool done() const override { return n_left_ == 0; }

 private:
  int factors_[2];
  int n_accepted_ = 0, n_left_;
};

}  // namespace ridge
