// Hyper-connections. A token has n streams (a handful) and (2 + n) n factors, so the factors are scalar work; the streams are mixed 16 numbers at a time.
#include "cpu/kernels/attention_tile.h"
#include "cpu/kernels/kernels.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

inline float sigmoid1(float x) { return 1.0f / (1.0f + exp1(-x)); }

// Divides every line of an n x n matrix by its sum + eps: a line's numbers are `step` apart, its neighbour `next` away.
inline void divide_by_sums(float* mix, int n, int next, int step, float eps) {
  for (int a = 0; a < n; ++a) {
    float sum = 0;
    for (int b = 0; b < n; ++b) sum += mix[a * next + b * step];
    for (int b = 0; b < n; ++b) mix[a * next + b * step] /= sum + eps;
  }
}

void make_factors(float* w, const HyperEnter& op) {
  const int n = op.n;
  for (int64_t i = 0; i < op.weights.cols; ++i) w[i] = w[i] * op.scale.f32()[i < n ? 0 : i < 2 * n ? 1 : 2] + op.base.f32()[i];
  for (int i = 0; i < n; ++i) w[i] = sigmoid1(w[i]) + op.eps;
  if (op.weights.cols == n) return;
  for (int i = n; i < 2 * n; ++i) w[i] = 2.0f * sigmoid1(w[i]);
  float* mix = w + 2 * n;
  for (int i = 0; i < n; ++i) {
    float* row = mix + i * n;
    float largest = row[0], sum = 0;
    for (int j = 1; j < n; ++j) largest = row[j] > largest ? row[j] : largest;
    for (int j = 0; j < n; ++j) sum += row[j] = exp1(row[j] - largest);
    for (int j = 0; j < n; ++j) row[j] = row[j] / sum + op.eps;
  }
  divide_by_sums(mix, n, 1, n, op.eps);
  for (int i = 1; i < op.iterations; ++i) {
    divide_by_sums(mix, n, n, 1, op.eps);
    divide_by_sums(mix, n, 1, n, op.eps);
  }
}

}  // namespace

void hyper_enter(const HyperEnter& op, Lane& lane) {
  const auto [first, last] = lane.part(op.x.rows);
  for (int64_t t = first; t < last; ++t) {
    float* w = op.weights.f32(t);
    make_factors(w, op);
    const float* x = op.x.f32(t);
    for_lanes(0, op.out.cols, [&](int64_t d, int n_lanes) {
      F sum = zero();
      for (int i = 0; i < op.n; ++i) sum = fma(set1(w[i]), load_n(x + i * op.out.cols + d, n_lanes), sum);
      store_n(op.out.f32(t) + d, sum, n_lanes);
    });
  }
}

bool fits_hyper(const HyperLeave& op) { return op.n <= 16; }

void hyper_leave(const HyperLeave& op, Lane& lane) {
  const int n = op.n;
  for_pieces(lane, op.y.rows, op.y.cols, [&](int64_t t, int64_t first, int64_t last) {
    const float *out = op.weights.f32(t) + n, *mix = out + n, *y = op.y.f32(t);
    float* x = op.x.f32(t);
    for_lanes(first, last, [&](int64_t d, int n_lanes) {
      F old[16];
      for (int j = 0; j < n; ++j) old[j] = load_n(x + j * op.y.cols + d, n_lanes);
      for (int k = 0; k < n; ++k) {
        F sum = mul(set1(out[k]), load_n(y + d, n_lanes));
        for (int j = 0; j < n; ++j) sum = fma(set1(mix[j * n + k]), old[j], sum);
        store_n(x + k * op.y.cols + d, sum, n_lanes);
      }
    });
  });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
