// A result that reaches the next kernel number by number: the one that makes it writes into a relay, where every number is kUnmade until then, and the one that waits for it reads it
// again until it is not. So a kernel that lies ready goes on when the last number it needs has been written, and does not wait until the other has ended, its memory is flushed, it
// has been released itself and has asked for what it can read then: four trips of 0.3 to 0.7 us each, of which one is left.
//
// Whoever writes to a relay, or clears one, has called await_predecessors(): all that used it before has ended. What is read goes by reading alone: every kernel between the one that clears a relay
// and the one that reads from it next takes more than half of the device's multiprocessors and of their shared memory, so few of them lie there at once (kRelays: more than that).
#pragma once
#include <cstdint>

namespace ridge::cuda {

constexpr int kRelays = 8;                                                  // used by turns
constexpr uint32_t kUnmade = 0xffffffffu;                                   // a NaN that no arithmetic makes; of two numbers in bf16 as well

struct RelayWords { uint32_t* at; int n; };                                 // a relay, or nothing

#if defined(__CUDACC__)
__device__ inline float4 load_relayed(const float4* p) {
  float4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ inline uint4 load_relayed(const uint4* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ inline float load_relayed(const float* p) {
  float v;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_relayed(float* p, float v) { asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory"); }

__device__ inline bool unmade(float v) { return __float_as_uint(v) == kUnmade; }
__device__ inline bool unmade(const float4& v) { return unmade(v.x) || unmade(v.y) || unmade(v.z) || unmade(v.w); }
// One of two numbers in bf16 that has all bits set: the other way round, one that is zero.
__device__ inline uint32_t unmade_pairs(uint32_t w) { return (~w - 0x00010001u) & w & 0x80008000u; }
__device__ inline bool unmade(const uint4& v) { return (unmade_pairs(v.x) | unmade_pairs(v.y) | unmade_pairs(v.z) | unmade_pairs(v.w)) != 0; }

// By thread `nth` of `n`, after await_predecessors().
__device__ inline void clear(const RelayWords& relay, int nth, int n) {
  for (int i = nth; i < relay.n; i += n) relay.at[i] = kUnmade;
}
#endif

}  // namespace ridge::cuda
