#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace ridge {

template <int N>
void FadingFit<N>::observe(const std::array<double, N>& x, double y, double weight, double fading) {
  // What took far longer than it should was disturbed by something else.
  if (n_ >= 16)
    if (const double expected = predict(x); y > 3 * expected) weight *= 3 * expected / y;
  for (int i = 0; i < N; ++i) {
    b_[i] = b_[i] * fading + weight * x[i] * y;
    for (int j = 0; j < N; ++j) a_[i][j] = a_[i][j] * fading + weight * x[i] * x[j];
  }
  n_++;
  // Coordinate descent from the last answer: where the observations leave a choice, it stays what it was.
  for (int sweep = 0; sweep < 16; ++sweep)
    for (int i = 0; i < N; ++i) {
      if (a_[i][i] <= 0) continue;
      double rest = b_[i];
      for (int j = 0; j < N; ++j)
        if (j != i) rest -= a_[i][j] * w_[j];
      w_[i] = std::max(0.0, rest / a_[i][i]);
    }
}

template <int N>
double FadingFit<N>::predict(const std::array<double, N>& x) const {
  double sum = 0;
  for (int i = 0; i < N; ++i) sum += w_[i] * x[i];
  return sum;
}

template class FadingFit<3>;
template class FadingFit<2>;

StepCost::StepCost(const KvCache& kv) {
  double n_layers = 0;
  for (int g = 0; g < kv.n_groups(); ++g) {
    if (kv.spec(g).kind == KvKind::recurrent) continue;
    layers_.push_back({kv.spec(g).window, double(kv.n_layers(g))});
    n_layers += kv.n_layers(g);
  }
  for (Layers& l : layers_) l.share /= n_layers;
}

double StepCost::attended(int position) const {
  double sum = 0;
  for (const Layers& l : layers_) sum += l.share * (l.window > 0 ? std::min(position + 1, l.window) : position + 1);
  return sum;
}

double StepCost::attended(int first, int n) const {
  return n <= 0 ? 0 : n * (attended(first) + attended(first + n - 1)) / 2;
}

void StepCost::observe(const StepShape& shape, double seconds) {
  const double weight = 1 / std::max(seconds * seconds, 1e-12);
  if (shape.n_prefill <= 0) {
    if (shape.n_decodes > 0) decodes_.observe({1, double(shape.n_decodes), shape.decode_attended}, seconds, weight, 0.98);
    return;
  }
  double rest = seconds - (knows_decodes() ? decode_seconds(shape.n_decodes, shape.decode_attended) : 0);
  // A small difference of two large numbers: it may say half of what was thought, not nothing.
  rest = std::max(rest, knows_prefill() ? 0.5 * prefill_seconds(shape.n_prefill, shape.prefill_attended) : 0.1 * seconds);
  observe_prefill(shape.n_prefill, shape.prefill_attended, rest);
}

void StepCost::observe_prefill(double n_tokens, double attended, double seconds) {
  prefill_.observe({n_tokens, attended}, seconds, 1 / std::max(seconds * seconds, 1e-12), 0.9);
}

double StepCost::decode_seconds(int n_decodes, double attended) const { return decodes_.predict({1, double(n_decodes), attended}); }
double StepCost::prefill_seconds(double n_tokens, double attended) const { return prefill_.predict({n_tokens, attended}); }

int StepCost::tokens_within(double seconds, int position, int n_most) const {
  int low = 0, high = n_most;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (prefill_seconds(middle, attended(position, middle)) <= seconds) low = middle;
    else high = middle - 1;
  }
  return low;
}

}  // namespace ridge
