// Weights on their way into shared memory while older ones are multiplied (sm_90): the copy engine brings contiguous bytes and reports them to a barrier, whose phases
// alternate between parity 0 and 1. `arrived` is filled by the engine, `left` counts the warps that are done with a slot.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace ridge::cuda {

__device__ inline uint32_t address_of(const void* shared) { return static_cast<uint32_t>(__cvta_generic_to_shared(shared)); }

#if __CUDA_ARCH__ >= 900
__device__ inline void init_gate(uint64_t* gate, int n_arrivals) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address_of(gate)), "r"(n_arrivals) : "memory"); }
__device__ inline void publish_gates() { asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void pass_gate(uint64_t* gate) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address_of(gate)) : "memory"); }

__device__ inline void await_gate(uint64_t* gate, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(address_of(gate)), "r"(parity) : "memory");
}

// For bytes that are read once a step: they are the first to leave the second-level cache, where else they would push out what the next kernels read (the step's
// tables, angles, norms, K and V) once a layer.
__device__ inline uint64_t read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// n_bytes: a multiple of 16, as both addresses. The gate expects them already, or is told to.
__device__ inline void copy_once(void* to, const std::byte* from, int n_bytes, uint64_t* gate, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(address_of(to)), "l"(from), "r"(n_bytes), "r"(address_of(gate)), "l"(policy) : "memory");
}
__device__ inline void stage(void* to, const std::byte* from, int n_bytes, uint64_t* gate, uint64_t policy) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address_of(gate)), "r"(n_bytes) : "memory");
  copy_once(to, from, n_bytes, gate, policy);
}
#endif

// pass_gate once `value` is known, say because it was loaded: both ways lead there.
__device__ inline void pass_gate_with(uint64_t* gate, float value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .pred some;\nsetp.gt.f32 some, %1, 0f00000000;\n@some mbarrier.arrive.shared.b64 _, [%0];\n@!some mbarrier.arrive.shared.b64 _, [%0];\n}" ::"r"(address_of(gate)), "f"(value) : "memory");
#endif
}

// Lanes that are not `there` keep what v holds, and take no part in the access.
__device__ inline void load_where(uint4& v, uint32_t address, bool there) {
  asm volatile("{\n.reg .pred there;\nsetp.ne.u32 there, %5, 0;\n@there ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "r"(address), "r"(uint32_t(there)));
}

}  // namespace ridge::cuda
