// A result that reaches whoever waits for it number by number: the one that makes it writes it into a relay, where every number is unmade until then, and the others read it until it is
// not. Between blocks of one kernel this is one trip to the second-level cache, where a barrier of all blocks takes three: arrival, release, and the numbers.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace ridge::cuda {

constexpr uint32_t kUnmade = 0xffffffffu;                                   // a NaN that no arithmetic makes, and two of them in bf16

constexpr int64_t kTileRelayBytes = 4 << 20;                                // for attention's tiles: 240 of 4,096 numbers
struct RelayWords { uint32_t* at; int n; };                                 // a relay to be cleared, or nothing

#if defined(__CUDACC__)                      // the backend itself is compiled by the host's compiler

// Asked for anew every time: for all the compiler knows of other loads, a number stays what it is.
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
__device__ inline float2 load_relayed(const float2* p) {
  float2 v;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_relayed(float* p, const float2& v) { asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(v.x), "f"(v.y) : "memory"); }
__device__ inline void store_relayed(float* p, const float4& v) { asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory"); }
__device__ inline void store_relayed(float* p, float v) { asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory"); }
__device__ inline void store_relayed(__nv_bfloat16* p, __nv_bfloat16 v) { asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(p), "h"(__bfloat16_as_ushort(v)) : "memory"); }

#endif

#if defined(__CUDACC__) || defined(RIDGE_EMULATED)
__device__ inline bool unmade(float v) { return __float_as_uint(v) == kUnmade; }
__device__ inline bool unmade(const float4& v) { return unmade(v.x) || unmade(v.y) || unmade(v.z) || unmade(v.w); }
// One of two numbers in bf16 that has all bits set: of the complement, one that is zero.
__device__ inline uint32_t unmade_pairs(uint32_t w) { return (~w - 0x00010001u) & w & 0x80008000u; }
__device__ inline bool unmade(const uint4& v) { return (unmade_pairs(v.x) | unmade_pairs(v.y) | unmade_pairs(v.z) | unmade_pairs(v.w)) != 0; }

template <class T>
__device__ inline T not_made() {
  T v;
  v.x = v.y = v.z = v.w = __builtin_bit_cast(decltype(v.x), kUnmade);
  return v;
}

// Those of v that are unmade, from p, p + apart, ...: once, or until none is. Only they are asked for again: with all of them, 132 blocks that wait ask for as many bytes as a layer's weights have.
template <class T, int n>
__device__ inline void load_made(T (&v)[n], const T* p, int apart, bool until_made) {
  for (;;) {
#pragma unroll
    for (int i = 0; i < n; ++i)
      if (unmade(v[i])) v[i] = load_relayed(p + i * apart);
    if (!until_made) return;
    bool waits = false;
#pragma unroll
    for (int i = 0; i < n; ++i) waits |= unmade(v[i]);
    if (!waits) return;
  }
}

// By thread `nth` of `n`, after await_predecessors().
__device__ inline void clear(const RelayWords& relay, int nth, int n) {
#pragma unroll 1
  for (int i = nth; i < relay.n; i += n) relay.at[i] = kUnmade;
}
#endif

}  // namespace ridge::cuda
