// The tokens of a sequence that penalties look at, counted (step.h): every generated one, those that the repetition penalty looks back at, and those with a bias. It follows the sequence
// from step to step: a token more is one entry touched, and one that the window leaves behind another.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/step.h"

namespace ridge {

class TokenCounts {
 public:
  using Biases = std::unordered_map<int32_t, float>;
  // Of these tokens, generated from n_prompt on and recent from first_recent on, and of the biased ones, the same in every call. Good until the next call; in any order.
  std::span<const TokenCount> follow(std::span<const int32_t> tokens, int n_prompt, int first_recent, const Biases& biases = {});

 private:
  int place_of(int32_t token);               // which is listed from then on
  void add(int32_t token, bool is_generated, bool is_recent);
  void forget(int32_t token);                // one time that it was recent

  std::vector<TokenCount> counts_;
  std::vector<int> n_recent_;                // the same tokens: times
  std::unordered_map<int32_t, int> places_;  // by token, in both
  int n_counted_ = 0, first_recent_ = 0;     // what the last call was given
  bool has_biases_ = false;
};

}  // namespace ridge
