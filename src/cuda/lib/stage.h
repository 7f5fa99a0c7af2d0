// Weights on their way into shared memory while a warp still multiplies older ones: each warp copies whole units into slots of its own, in groups that finish in order.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace ridge::cuda {

// n_bytes (a multiple of 16) by the lanes of one warp.
template <int kBytes>
__device__ inline void stage_unit(uint32_t slot, const std::byte* from, int lane) {
#pragma unroll
  for (int c = 0; c < kBytes / 16; c += 32)
    if (c + 32 <= kBytes / 16 || c + lane < kBytes / 16)
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(slot + (c + lane) * 16), "l"(from + (c + lane) * 16) : "memory");
}

__device__ inline void close_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all but the kPending newest groups of this thread are there.
template <int kPending>
__device__ inline void await_stages() { asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory"); }

}  // namespace ridge::cuda
