// Sums and maxima over a warp, in one fixed order.
#pragma once

namespace ridge::cuda {

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}

// Over four lanes in a row, where those of a warp may have gone different ways.
__device__ inline float quad_sum(float v) {
  const unsigned quad = 0xfu << (threadIdx.x & 28);
  v += __shfl_xor_sync(quad, v, 1);
  return v + __shfl_xor_sync(quad, v, 2);
}

__device__ inline float warp_max(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}

}  // namespace ridge::cuda
