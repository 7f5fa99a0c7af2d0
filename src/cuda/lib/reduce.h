// Sums and maxima over a warp and a block, in one fixed order.
#pragma once

namespace ridge::cuda {

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}

__device__ inline float warp_max(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}

// Every thread gets the sum. `shared`: 32 floats. Ends with a barrier, so the memory may be used again.
__device__ inline float block_sum(float v, float* shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = (blockDim.x + 31) / 32;
  v = warp_sum(v);
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  v = warp_sum(lane < n_warps ? shared[lane] : 0.0f);
  __syncthreads();
  return v;
}

}  // namespace ridge::cuda
