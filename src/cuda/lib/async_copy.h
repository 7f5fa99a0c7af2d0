// Copies that run beside the threads, and the barriers they report to (sm_90): a producer asks for bytes, consumers wait for the barrier's phase.
//   Barrier   counts arrivals and outstanding bytes; a phase ends when both are met. Waits name the parity of the phase they wait for.
//   bulk      contiguous bytes (multiples of 16), from device memory or to it
//   chunk     16 bytes a thread (cp.async), zeros where the source is not valid: for rows scattered over pages
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

// Whether what sm_90 has is there: on such devices, and where it is emulated (tests/emulated).
#if __CUDA_ARCH__ >= 900 || defined(RIDGE_EMULATED)
#define RIDGE_SM90
#endif

namespace ridge::cuda {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// The block's dynamic shared memory, declared in its kernel. (A pointer from a function made for it cost kernels that are short of registers 76 bytes of spills more.)
#if defined(__CUDACC__)
#define RIDGE_DYNAMIC_SHARED(name, alignment) extern __shared__ __align__(alignment) std::byte name[]
#endif

__device__ inline void copy_chunk(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
__device__ inline void copy_chunk(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// The first n_bytes of a chunk, then zeros.
__device__ inline void copy_part_of_chunk(void* to, const void* from, int n_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(n_bytes) : "memory");
}
__device__ inline void commit_chunks() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void await_chunks() { asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory"); }

// Contiguous bytes (a multiple of 16) on their way as far as the second-level cache; nothing before sm_90.
__device__ inline void prefetch_bulk([[maybe_unused]] const void* from, [[maybe_unused]] int n_bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(n_bytes) : "memory");
#endif
}

// The line of `p`, as far as there.
__device__ inline void prefetch_line([[maybe_unused]] const void* p) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

// For what others read soon: it is the last to leave the second-level cache, whatever streams through it meanwhile.
__device__ inline uint64_t read_again() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void store_kept(float* p, const float2& v, uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1, %2}, %3;" ::"l"(p), "f"(v.x), "f"(v.y), "l"(policy) : "memory");
}
__device__ inline void store_kept(float* p, const float4& v, uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "l"(policy) : "memory");
}

// A barrier among n_threads of a block, by number (0 is __syncthreads).
__device__ inline void sync_threads_of(int id, int n_threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory"); }

using Barrier = uint64_t;

// arrive() once `value` is known, say because it was loaded: both ways lead there.
__device__ inline void arrive_with([[maybe_unused]] Barrier* b, [[maybe_unused]] float value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .pred some;\nsetp.gt.f32 some, %1, 0f00000000;\n@some mbarrier.arrive.shared.b64 _, [%0];\n@!some mbarrier.arrive.shared.b64 _, [%0];\n}" ::"r"(shared_address(b)), "f"(value) : "memory");
#endif
}

#if __CUDA_ARCH__ >= 900

// One arrival of this thread, when all chunks that it has asked for so far are there.
__device__ inline void arrive_after_chunks(Barrier* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}

__device__ inline void init_barrier(Barrier* b, int n_arrivals) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(n_arrivals) : "memory"); }
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void arrive(Barrier* b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(b)) : "memory"); }
__device__ inline void arrive_expecting(Barrier* b, int n_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(n_bytes) : "memory");
}
__device__ inline void await(Barrier* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(shared_address(b)), "r"(parity)
      : "memory");
}
// For those that copy, and mostly wait: they sleep for longer, and leave the scheduler to others.
__device__ inline void await_long(Barrier* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1, %2;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(shared_address(b)), "r"(parity),
      "r"(10000)
      : "memory");
}
__device__ inline void copy_bulk(void* to, const void* from, int n_bytes, Barrier* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(n_bytes), "r"(shared_address(b)) : "memory");
}
// For bytes that are read once a step: they are the first to leave the second-level cache, where else they would push out what the next kernels read (the step's
// tables, angles, norms, K and V) once a layer.
__device__ inline uint64_t read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void copy_bulk(void* to, const void* from, int n_bytes, Barrier* b, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)), "l"(from), "r"(n_bytes),
               "r"(shared_address(b)), "l"(policy)
               : "memory");
}
// The way out: rows of shared memory to device memory. The thread that asked may wait until its source can be written again.
__device__ inline void store_bulk(void* to, const void* from, int n_bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(n_bytes) : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending = 0>
__device__ inline void await_stores_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory"); }
__device__ inline void await_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// A warp's arrival, when its lanes have read or written what the barrier stands for: by one of them, at a barrier made for kWarpArrivals of each warp. compute-sanitizer's racecheck sees no order between
// that lane and the others, so in builds for it (RIDGE_RACECHECK) every lane arrives.
#if defined(RIDGE_RACECHECK)
constexpr int kWarpArrivals = 32;
__device__ inline void arrive_as_warp(Barrier* b, int /*lane*/) { arrive(b); }
#else
constexpr int kWarpArrivals = 1;
__device__ inline void arrive_as_warp(Barrier* b, int lane) {
  if (lane == 0) arrive(b);
}
#endif

// Counted among them, without waiting.
__device__ inline void arrive_among_threads(int id, int n_threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory"); }

// The same among threads of which some have met at another number before. racecheck loses their order there, so in builds for it they meet at `b`, in shared memory; else that is not looked at.
#if defined(RIDGE_RACECHECK)
__device__ inline void make_meeting(Barrier* b, int n_threads) { init_barrier(b, n_threads); }
__device__ inline void meet(Barrier* b, int /*id*/, int /*n_threads*/) {
  asm volatile("{\n.reg .pred done;\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\nagain:\nmbarrier.try_wait.shared.b64 done, [%0], state;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(
                   shared_address(b))
               : "memory");
}
#else
__device__ inline void make_meeting(Barrier* /*b*/, int /*n_threads*/) {}
__device__ inline void meet(Barrier* /*b*/, int id, int n_threads) { sync_threads_of(id, n_threads); }
#endif

// Memory written by ordinary stores, or about to be read by copies after it was waited for: between the two.
__device__ inline void fence_for_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Shared memory written by ordinary stores or copy_chunk becomes visible to the tensor cores' own reads.
__device__ inline void fence_for_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers of the calling warpgroup: given back by copying warps, taken by multiplying ones.
template <int kRegisters>
__device__ inline void shrink_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ inline void grow_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

#endif

}  // namespace ridge::cuda
