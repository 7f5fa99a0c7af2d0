// A head on its way from a projection to attention: norm, then rotation, by one warp; lane l holds elements l, l + 32, ...
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/op.h"
#include "cuda/lib/head_weights.h"
#include "cuda/lib/row_norm.h"

namespace ridge::cuda {

__device__ inline void put(std::byte* plane, FormatId format, int64_t index, float v) {
  if (format == FormatId::f32) reinterpret_cast<float*>(plane)[index] = v;
  else if (format == FormatId::f16) reinterpret_cast<__half*>(plane)[index] = __float2half_rn(v);
  else reinterpret_cast<__nv_bfloat16*>(plane)[index] = __float2bfloat16_rn(v);
}

// Element d of a head after rotation: its partner is half a rotation away, or its neighbour.
__device__ inline float rotated(const float* x, const float* angles, int d, int n_rot, RopeStyle style) {
  if (!angles || d >= n_rot) return x[d];
  const int half = n_rot / 2;
  const bool first = style == RopeStyle::half ? d < half : d % 2 == 0;
  const int i = style == RopeStyle::half ? (first ? d : d - half) : d / 2;
  const int partner = style == RopeStyle::half ? (first ? d + half : d - half) : (first ? d + 1 : d - 1);
  const float c = angles[i], s = angles[half + i];
  return first ? fmaf(x[d], c, -(x[partner] * s)) : fmaf(x[d], c, x[partner] * s);
}

template <int kOwn>
__device__ inline void norm_head(float (&value)[kOwn], const float (&weight)[kOwn], const HeadWeights& norm, int dim) {
  const int lane = threadIdx.x % 32;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (lane + 32 * i < dim) squares = fmaf(value[i], value[i], squares);
  const float factor = rms_factor(warp_sum(squares), dim, norm.eps);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) value[i] = value[i] * factor * (weight[i] + norm.offset);
}

// `head`: a head in shared memory, of the warp's own.
template <int kOwn>
__device__ inline void rotate_head(float (&value)[kOwn], float* head, const float* angles, int dim, int n_rot, RopeStyle style) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (lane + 32 * i < dim) head[lane + 32 * i] = value[i];
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (lane + 32 * i < dim) value[i] = rotated(head, angles, lane + 32 * i, n_rot, style);
  __syncwarp();
}

}  // namespace ridge::cuda
