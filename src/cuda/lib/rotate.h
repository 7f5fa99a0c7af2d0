// What happens to a head between its projection and attention: a norm of its own, then the rotation by the token's angles. A warp takes one head, lane l the numbers
// l, l + 32, ...; whichever kernel does it, the bits are the same.
#pragma once
#include "backend/op.h"
#include "cuda/lib/row_norm.h"

namespace ridge::cuda {

struct NormOfHeads { const float* weight; int64_t head_stride; float eps, offset; };      // weight null: none; head_stride: from one head's weights to the next's

inline NormOfHeads norm_of_heads(const HeadNorm* op, int head_dim) {
  return op ? NormOfHeads{op->weight.f32(), op->weight.cols == head_dim ? 0 : head_dim, op->eps, op->weight_offset} : NormOfHeads{};
}

// For attention that does it on the way: q of PagedAttention, and these, are as the projections left them.
struct Rotation {
  Tensor k, v, angles;
  NormOfHeads q_norm, k_norm;
  int n_rot;
  RopeStyle style;
};
inline Rotation rotation_of(const RopeStore& op, const HeadNorm* q_norm, const HeadNorm* k_norm) {
  return {op.k, op.v, op.angles, norm_of_heads(q_norm, op.head_dim), norm_of_heads(k_norm, op.head_dim), op.n_rot, op.style};
}

template <int kOwn>
__device__ inline void norm_head(float (&value)[kOwn], const float (&weight)[kOwn], int dim, const NormOfHeads& norm) {
  const int lane = threadIdx.x % 32;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (lane + 32 * i < dim) squares = fmaf(value[i], value[i], squares);
  const float factor = rms_factor(warp_sum(squares), dim, norm.eps);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) value[i] = value[i] * factor * (weight[i] + norm.offset);
}

// How number d of a head rotates: with which partner (half a rotation away, or its neighbour), by which angle, and whether it is the first of the two.
struct Turn { int partner, angle; bool first; };
__device__ inline Turn turn_of(int d, int n_rot, RopeStyle style) {
  const int half = n_rot / 2;
  if (style == RopeStyle::half) return d < half ? Turn{d + half, d, true} : Turn{d - half, d - half, false};
  return d % 2 == 0 ? Turn{d + 1, d / 2, true} : Turn{d - 1, d / 2, false};
}
__device__ inline float turned(float x, float partner, float cosine, float sine, bool first) { return first ? fmaf(x, cosine, -(partner * sine)) : fmaf(x, cosine, partner * sine); }

}  // namespace ridge::cuda
