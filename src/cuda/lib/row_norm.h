// The factor of an rms norm, added up in one order by whichever kernel needs it. The squares of each 16 numbers (a row tile of whatever matmul makes them) are a sum; every 128th of these sums is added
// in order of position, and then the 128, by pairs (s, s ^ d) with d = 1, 2, 4, 64, 32, 16, 8. Twice kNormThreads threads that take chunks of four numbers in turn have them so, and kNormThreads that keep
// even chunks and odd ones apart, and a warp that reads the sums which others have left (TileSquares).
#pragma once
#include "cuda/lib/async_copy.h"
#include "cuda/lib/reduce.h"

namespace ridge::cuda {

constexpr int kNormThreads = 256;

__device__ inline float squares_of(const float4& v) { return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, __fmul_rn(v.x, v.x)))); }
// Those of 16 numbers, by four lanes in a row, of which each has four: for each of them.
__device__ inline float tile_squares(const float4& v) {
  float sum = squares_of(v);
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// Four numbers of a row from position k on; zeros from `cols` on. Around the first-level cache: another kernel has just written them.
__device__ inline float4 four_of(const float* row, int k, int cols) {
  if (k + 4 <= cols) return __ldcg(reinterpret_cast<const float4*>(row + k));
  float4 v{0, 0, 0, 0};
  if (k < cols) v.x = __ldcg(row + k);
  if (k + 1 < cols) v.y = __ldcg(row + k + 1);
  if (k + 2 < cols) v.z = __ldcg(row + k + 2);
  return v;
}

// A barrier of kNormThreads threads that are one group of a block, of up to two; barrier 0 is the block's own.
__device__ inline void sync_group(int group) { sync_threads_of(group + 1, kNormThreads); }

// Of eight numbers, one a warp.
__device__ inline float add_warps(const float4& low, const float4& high) {
  return ((low.x + high.x) + (low.z + high.z)) + ((low.y + high.y) + (low.w + high.w));      // as exchanges between lanes would add, in a third of their time
}
// Sum over the warps of a block of kNormThreads, for each thread of them. `shared`: 8 floats, 16-byte aligned.
__device__ inline float sum_of_warps(float of_warp, float* shared) {
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = of_warp;
  sync_group(0);
  const float sum = add_warps(*reinterpret_cast<const float4*>(shared), *reinterpret_cast<const float4*>(shared + 4));
  sync_group(0);                                                              // they are used again
  return sum;
}
// Over its threads.
__device__ inline float block_sum(float v, float* shared) { return sum_of_warps(warp_sum(v), shared); }
// Over their fours of lanes, of which each has one number.
__device__ inline float warp_sum_of_quads(float v) {
#pragma unroll
  for (int d = 4; d < 32; d *= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}
// Squares of even chunks and of odd ones.
__device__ inline float warp_squares(const float (&of)[2]) { return warp_sum_of_quads(of[0]) + warp_sum_of_quads(of[1]); }

// A division by a power of two is a multiplication, without the branch that the compiler puts around divisions.
__device__ inline float rms_factor(float squares, int cols, float eps) {
  const float n = float(cols), mean = (cols & (cols - 1)) == 0 ? squares * __int_as_float(0x7F000000 - __float_as_int(n)) : squares / n;
  return rsqrtf(mean + eps);
}

}  // namespace ridge::cuda
