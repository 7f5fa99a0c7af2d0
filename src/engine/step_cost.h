// How long a step takes, learned from those that were run:
//   seconds = [1, decodes, positions the decodes attend to] . d  +  [prefill tokens, positions they attend to] . p        all of d and p >= 0
// d comes from steps that only decode, p from what the others took beyond that, so neither is forgotten while the other is all that is seen. Both are least
// squares of relative errors over recent steps. A layer that sees a window counts for what it sees.
#pragma once
#include <array>
#include <vector>

#include "kv/cache.h"

namespace ridge {

// What a step computes, as far as its time depends on it.
struct StepShape {
  int n_decodes = 0;
  double decode_attended = 0;                // positions, in the mean over layers, summed over tokens
  double n_prefill = 0, prefill_attended = 0;
};

// Least squares with weights that cannot be negative, over observations that fade.
template <int N>
class FadingFit {
 public:
  void observe(const std::array<double, N>& x, double y, double weight, double fading);
  double predict(const std::array<double, N>& x) const;
  int n() const { return n_; }

 private:
  void solve();
  std::array<std::array<double, N>, N> a_{};
  std::array<double, N> b_{}, w_{};
  int n_ = 0;
};

class StepCost {
 public:
  explicit StepCost(const KvCache& kv);

  double attended(int position) const;                        // by the token at a position
  double attended(int first, int n) const;                    // by the tokens [first, first + n) together

  void observe(const StepShape& shape, double seconds);
  void observe_prefill(double n_tokens, double attended, double seconds);      // alone, without what every step costs
  bool knows_decodes() const { return decodes_.n() >= 3; }
  bool knows_prefill() const { return prefill_.n() >= 1; }
  double decode_seconds(int n_decodes, double attended) const;
  double prefill_seconds(double n_tokens, double attended) const;
  // The most tokens from a position on, up to n_most, that take no longer than that; may be 0.
  int tokens_within(double seconds, int position, int n_most) const;

 private:
  struct Layers { int window; double share; };                // 0: all positions
  std::vector<Layers> layers_;
  FadingFit<3> decodes_;
  FadingFit<2> prefill_;
};

}  // namespace ridge
