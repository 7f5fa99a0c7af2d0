// The factor of an rms norm, added up in one order by whichever kernel needs it: kNormThreads threads take chunks of four numbers in turn, each adds its squares in
// order of position, then lanes, then warps. A row's norm is therefore the same alone in a kernel of its own and on the way into a matmul.
#pragma once
#include "cuda/lib/async_copy.h"
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
__device__ inline void sync_group(int group) { sync_threads_of(group + 1, kNormThreads); }

// Sum over the threads of a group, for each of them. `shared`: 8 floats of the group's own, 16-byte aligned; `again`: they are used again.
__device__ inline float group_sum(float v, float* shared, int group, bool again = true) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % (kNormThreads / 32);
  v = warp_sum(v);
  if (lane == 0) shared[warp] = v;
  sync_group(group);
  const float4 low = *reinterpret_cast<const float4*>(shared), high = *reinterpret_cast<const float4*>(shared + 4);
  if (again) sync_group(group);
  return ((low.x + high.x) + (low.z + high.z)) + ((low.y + high.y) + (low.w + high.w));      // as exchanges between lanes would add, in a third of their time
}

// A division by a power of two is a multiplication, without the branch that the compiler puts around divisions.
__device__ inline float rms_factor(float squares, int cols, float eps) {
  const float n = float(cols), mean = (cols & (cols - 1)) == 0 ? squares * __int_as_float(0x7F000000 - __float_as_int(n)) : squares / n;
  return rsqrtf(mean + eps);
}

}  // namespace ridge::cuda
