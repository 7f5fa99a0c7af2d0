// The factor of an rms norm, added up in one order by whichever kernel needs it: kNormThreads threads take chunks of four numbers in turn, each adds its squares in
// order of position, then lanes, then warps. A row's norm is therefore the same alone in a kernel of its own and on the way into a matmul.
#pragma once
#include "cuda/lib/reduce.h"

namespace ridge::cuda {

constexpr int kNormThreads = 256;

__device__ inline float add_squares(float sum, const float4& v) { return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum)))); }

// Four numbers of a row from position k on; zeros from `cols` on. Around the first-level cache: another kernel has just written them.
__device__ inline float4 four_of(const float* row, int k, int cols) {
  if (k + 4 <= cols) return __ldcg(reinterpret_cast<const float4*>(row + k));
  float4 v{0, 0, 0, 0};
  if (k < cols) v.x = __ldcg(row + k);
  if (k + 1 < cols) v.y = __ldcg(row + k + 1);
  if (k + 2 < cols) v.z = __ldcg(row + k + 2);
  return v;
}

// A barrier of kNormThreads threads that are one group of a block, of up to three; barrier 0 is the block's own.
__device__ inline void sync_group(int group) { asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kNormThreads) : "memory"); }

// Sum over the threads of a group, for each of them. `shared`: 8 floats of the group's own.
__device__ inline float group_sum(float v, float* shared, int group) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % (kNormThreads / 32);
  v = warp_sum(v);
  if (lane == 0) shared[warp] = v;
  sync_group(group);
  v = shared[lane % (kNormThreads / 32)];
#pragma unroll
  for (int d = kNormThreads / 64; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  sync_group(group);
  return v;
}

__device__ inline float rms_factor(float squares, int cols, float eps) { return rsqrtf(squares / cols + eps); }

}  // namespace ridge::cuda
