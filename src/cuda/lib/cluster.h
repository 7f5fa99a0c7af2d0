// Blocks of one cluster (sm_90): they see each other's shared memory by rank, and barriers (lib/async_copy.h) may count another block's arrivals. Kernels that are compiled for
// older devices, too, have no clusters there.
#pragma once
#include "cuda/lib/async_copy.h"

namespace ridge::cuda {

#if defined(__CUDACC__)
constexpr bool kHasClusters = true;
#endif

// All threads of all blocks; the two halves of a barrier, so that work may lie between them. What was stored before the one is seen after the other.
__device__ inline void arrive_in_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
// The same where nothing was stored but barriers that publish_barriers() tells of, or nothing at all: the other waits for all that the thread has asked memory for, of the whole device.
__device__ inline void arrive_started() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ inline void await_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// The address of the same place in the shared memory of block `rank`.
__device__ inline uint32_t address_in(uint32_t shared, [[maybe_unused]] int rank) {
  uint32_t there = shared;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
#endif
  return there;
}
__device__ inline void store_in([[maybe_unused]] uint32_t to, [[maybe_unused]] const float2& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v.x), "f"(v.y) : "memory");
#endif
}
__device__ inline void store_in([[maybe_unused]] uint32_t to, [[maybe_unused]] const float4& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
#endif
}

// A store into another block's shared memory that reports its bytes to a barrier there.
#if __CUDA_ARCH__ >= 900
__device__ inline void send(uint32_t to, const float4& v, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier) : "memory");
}
// An arrival at another block's barrier, by one that has read what lay there. (With `.release.cluster` it would wait for all of memory first.)
__device__ inline void arrive_there(uint32_t barrier) { asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// The same bytes for the same place of both blocks of a pair; each one's barrier gets them.
__device__ inline void copy_bulk_to_pair(void* to, const void* from, int n_bytes, Barrier* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)), "l"(from), "r"(n_bytes), "r"(shared_address(b)),
               "h"(uint16_t{3})
               : "memory");
}
// What others wrote before they arrived is seen after it.
__device__ inline void await_in_cluster(Barrier* b, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(shared_address(b)), "r"(parity) : "memory");
}
#endif

}  // namespace ridge::cuda
