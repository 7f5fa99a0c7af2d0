// RMS and layer norms. A row is one worker's: its sums run over 16 lanes in two chains (even and odd vectors), then the lanes are added as a tree, so a row's
// bits depend on nothing but the row.
#include "cpu/kernels/kernels.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

// Sum of term(i, n) over the vectors of a row; lanes past n must come out as 0.
template <class Term>
inline float sum_row(int64_t cols, Term&& term) {
  F even = zero(), odd = zero();
  int64_t i = 0;
  for (; i + 32 <= cols; i += 32) {
    even = term(even, i, 16);
    odd = term(odd, i + 16, 16);
  }
  if (i < cols) even = term(even, i, cols - i < 16 ? static_cast<int>(cols - i) : 16);
  if (i + 16 < cols) odd = term(odd, i + 16, static_cast<int>(cols - i - 16));
  return reduce_add(add(even, odd));
}

inline float sum_of_squares(const float* x, int64_t cols) {
  return sum_row(cols, [x](F sum, int64_t i, int n) {
    const F v = load_n(x + i, n);
    return fma(v, v, sum);
  });
}

}  // namespace

void add_norm(const AddNorm& op, Lane& lane) {
  const int64_t cols = op.out.cols;
  const auto [first, last] = lane.part(op.out.rows);
  const float *weight = op.weight ? op.weight.f32() : nullptr, *bias = op.bias ? op.bias.f32() : nullptr;
  const float n_cols = static_cast<float>(cols);
  for (int64_t t = first; t < last; ++t) {
    float* x = op.x.f32(t);
    if (op.pending) {
      const float* pending = op.pending.f32(t);
      for_lanes(0, cols, [&](int64_t i, int n) { store_n(x + i, add(load_n(x + i, n), mul(set1(op.pending_scale), load_n(pending + i, n))), n); });
    }
    float mean = 0, variance;
    if (op.kind == NormKind::layer) {
      mean = sum_row(cols, [x](F sum, int64_t i, int n) { return add(sum, load_n(x + i, n)); }) / n_cols;
      variance = sum_row(cols, [x, m = set1(mean)](F sum, int64_t i, int n) {
        const F d = select(first_n(n), sub(load_n(x + i, n), m), zero());
        return fma(d, d, sum);
      }) / n_cols;
    } else {
      variance = sum_of_squares(x, cols) / n_cols;
    }
    const F factor = set1(1.0f / __builtin_sqrtf(variance + op.eps)), m = set1(mean), offset = set1(op.weight_offset);
    float* out = op.out.f32(t);
    for_lanes(0, cols, [&](int64_t i, int n) {
      F y = mul(sub(load_n(x + i, n), m), factor);
      if (weight) y = mul(y, add(load_n(weight + i, n), offset));
      if (bias) y = add(y, load_n(bias + i, n));
      store_n(out + i, y, n);
    });
  }
}

void head_norm(const HeadNorm& op, Lane& lane) {
  const int64_t head_dim = op.x.cols / op.n_heads;
  const auto of_head = [&](const Tensor& vector, int64_t head) { return vector ? vector.f32() + (vector.cols == head_dim ? 0 : head * head_dim) : nullptr; };
  const auto n_dims = static_cast<float>(head_dim);
  const auto [first, last] = lane.part(op.x.rows * op.n_heads);
  for (int64_t i = first; i < last; ++i) {
    const int64_t head = i % op.n_heads;
    float* x = op.x.f32(i / op.n_heads) + head * head_dim;
    const float *weight = of_head(op.weight, head), *bias = of_head(op.bias, head);
    if (op.kind == NormKind::layer) {
      const F mean = set1(sum_row(head_dim, [x](F sum, int64_t d, int n) { return add(sum, load_n(x + d, n)); }) / n_dims);
      for_lanes(0, head_dim, [&](int64_t d, int n) { store_n(x + d, sub(load_n(x + d, n), mean), n); });
    }
    const float squares = sum_of_squares(x, head_dim);
    const F factor = set1(1.0f / __builtin_sqrtf((op.kind == NormKind::l2 ? squares : squares / n_dims) + op.eps)), offset = set1(op.weight_offset);
    for_lanes(0, head_dim, [&](int64_t d, int n) {
      F y = mul(load_n(x + d, n), factor);
      if (weight) y = mul(y, add(load_n(weight + d, n), offset));
      if (bias) y = add(y, load_n(bias + d, n));
      store_n(x + d, y, n);
    });
  }
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
