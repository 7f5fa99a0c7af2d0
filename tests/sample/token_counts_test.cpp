// Counts that follow a sequence are those of its tokens counted anew, wherever it goes.
#include "sequence/token_counts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <tuple>

namespace ridge {
namespace {

using Counted = std::map<int32_t, std::tuple<int, bool, float>>;       // by token: times it was generated, whether it is recent, its bias

TEST(TokenCounts, AreTheSameStepByStepAsAllAtOnce) {
  std::mt19937 random(1);
  for (int run = 0; run < 300; ++run) {
    const int n_vocab = run % 2 ? 6 : 200, n_prompt = 1 + int(random() % 30), window = run % 3 ? int(random() % 20) : -1;
    std::vector<int32_t> tokens;
    for (int i = 0; i < 120; ++i) tokens.push_back(int32_t(random() % uint32_t(n_vocab)));
    TokenCounts counts;
    TokenCounts::Biases biases;
    for (int i = 0; i < run % 4; ++i) biases[int32_t(random() % uint32_t(n_vocab))] = i == 1 ? -INFINITY : float(1 + run);
    for (int n = n_prompt, unknown = 0; n < int(tokens.size()); n += int(random() % 3), unknown = int(random() % 2)) {
      if (random() % 30 == 0) n = n_prompt + int(random() % uint32_t(n - n_prompt + 1));       // back
      const int first_recent = window < 0 ? 0 : std::max(0, n + unknown - window);
      Counted expected, got;
      for (const auto& [token, bias] : biases) expected[token] = {0, false, bias};
      for (int i = 0; i < n; ++i) {
        if (i < n_prompt && i < first_recent) continue;
        auto& [n_generated, is_recent, bias] = expected[tokens[size_t(i)]];
        n_generated += i >= n_prompt, is_recent |= i >= first_recent;
      }
      const auto list = counts.follow(std::span(tokens).first(size_t(n)), n_prompt, first_recent, biases);
      for (const TokenCount& count : list) got[count.token] = {int(count.n_generated), bool(count.is_recent), count.bias};
      EXPECT_EQ(got.size(), list.size()) << "a token is listed twice";
      ASSERT_EQ(got, expected) << "run " << run << ", " << n << " tokens, recent from " << first_recent << " on";
    }
  }
}

}  // namespace
}  // namespace ridge
