// Blocks of one cluster (sm_90): they see each other's shared memory by rank, and gates (lib/stage.h) may be passed from another block.
#pragma once
#include "cuda/lib/stage.h"

namespace ridge::cuda {

#if __CUDA_ARCH__ >= 900
// All threads of all blocks; the two halves of a barrier, so that work may lie between them.
__device__ inline void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void await_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// The address of the same place in the shared memory of block `rank`.
__device__ inline uint32_t address_in(uint32_t shared, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
  return there;
}
// A store into another block's shared memory that reports its bytes to a gate there.
__device__ inline void send(uint32_t to, const float4& v, uint32_t gate) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(gate) : "memory");
}
// What others wrote before they passed the gate is seen after it.
__device__ inline void await_gate_of_cluster(uint64_t* gate, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(address_of(gate)), "r"(parity) : "memory");
}
#endif

// For kernels that are compiled for older devices, too, and have no clusters there.
__device__ inline void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
__device__ inline float load_from_rank(const float* shared, int rank) {
  float v = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address_in(address_of(shared), rank)) : "memory");
#endif
  return v;
}

}  // namespace ridge::cuda
