#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
  solve();
}

// The best of the answers over every choice of features that are not zero. Where the observations leave a choice, it stays near to what it was.
template <int N>
void FadingFit<N>::solve() {
  constexpr double kInertia = 1e-3;
  std::array<double, N> best = w_;
  double least = std::numeric_limits<double>::infinity();
  for (int chosen = 1; chosen < 1 << N; ++chosen) {
    std::array<int, N> at{};
    int n = 0;
    for (int i = 0; i < N; ++i)
      if (chosen >> i & 1) at[n++] = i;
    // Gauss over the chosen ones; the matrix is positive definite, or the choice is dropped.
    std::array<std::array<double, N + 1>, N> m{};
    bool is_good = true;
    for (int i = 0; i < n; ++i) {
      const double inertia = kInertia * a_[at[i]][at[i]];
      for (int j = 0; j < n; ++j) m[i][j] = a_[at[i]][at[j]] + (i == j ? inertia : 0);
      m[i][N] = b_[at[i]] + inertia * w_[at[i]];
    }
    for (int i = 0; i < n && is_good; ++i) {
      is_good = m[i][i] > 1e-12 * a_[at[i]][at[i]] && m[i][i] > 0;
      for (int r = 0; r < n && is_good; ++r) {
        if (r == i) continue;
        const double factor = m[r][i] / m[i][i];
        for (int j = i; j < n; ++j) m[r][j] -= factor * m[i][j];
        m[r][N] -= factor * m[i][N];
      }
    }
    std::array<double, N> w{};
    for (int i = 0; i < n && is_good; ++i) {
      w[at[i]] = m[i][N] / m[i][i];
      is_good = w[at[i]] >= 0;
    }
    if (!is_good) continue;
    double error = 0;
    for (int i = 0; i < N; ++i) {
      error += kInertia * a_[i][i] * (w[i] - w_[i]) * (w[i] - w_[i]) - 2 * b_[i] * w[i];
      for (int j = 0; j < N; ++j) error += a_[i][j] * w[i] * w[j];
    }
    if (error < least) least = error, best = w;
  }
  w_ = best;
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
