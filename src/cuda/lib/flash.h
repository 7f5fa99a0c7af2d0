// Attention on the tensor cores, the arithmetic that its kernels share. Positions are cut at absolute multiples of 128 into tiles. A tile is computed from nothing:
// scores s = q . k summed along the dimensions in order, their maximum m, weights p = 2^((s - m) factor), l = sum of p, o = sum of p v in order of position; then
// tiles are folded in order of position. Nothing depends on which rows, tiles or sequences run together, so one row by mma.sync and a whole prompt by wgmma give the
// same bits. Queries and weights p are rounded to the format of K and V (in fp8: to f16, and scales come in, lib/flash_fp8.h).
//
// A warp holds 16 rows (query heads and tokens that share K and V) x 128 positions as in mma.m16n8k16: s[4 j + 2 r + e] is row g + 8 r, position 8 j + 2 q + e.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

#include <cstdint>
#include <type_traits>

#include "backend/op.h"

namespace ridge::cuda {

constexpr int kFlashTile = 128;
constexpr float kLog2e = 1.4426950408889634f;

struct Seen { int from, to; };                                              // positions that a token sees
__device__ inline Seen seen_by(const PagedAttention& op, int position) { return {op.window > 0 ? max(0, position - op.window + 1) : 0, position + 1}; }

struct E4m3 {};                                                             // as the T of a kernel: K and V in fp8_e4m3 with scales
template <class T>
constexpr bool kIsFp8 = std::is_same_v<T, E4m3>;
template <class T>
using OperandOf = std::conditional_t<kIsFp8<T>, __half, T>;                  // what the tensor cores multiply
template <class T, int kDim>
constexpr int kRowBytesOf = (kIsFp8<T> ? 1 : 2) * kDim;                      // a position of a head

__device__ inline float exp2_fast(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

template <class T>
__device__ inline uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 v = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&v);
  } else {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
}

template <class T>
__device__ inline T rounded(float v) {
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(v);
  else return __float2bfloat16_rn(v);
}

// From a score to an exponent of two: caps are applied to scores beforehand.
__device__ inline float exponent_factor(const PagedAttention& op) { return op.softcap > 0 ? kLog2e : __fmul_rn(op.scale, kLog2e); }

__device__ inline void cap_scores(float (&s)[64], float scale, float cap) {
#pragma unroll
  for (int i = 0; i < 64; ++i) s[i] = cap * tanhf(s[i] * scale / cap);
}

// fp8: by the scales of the tile's positions [128].
__device__ inline void scale_scores(float (&s)[64], const float* scales, int q) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 k = *reinterpret_cast<const float2*>(scales + 8 * j + 2 * q);
#pragma unroll
    for (int r = 0; r < 2; ++r) s[4 * j + 2 * r] = __fmul_rn(s[4 * j + 2 * r], k.x), s[4 * j + 2 * r + 1] = __fmul_rn(s[4 * j + 2 * r + 1], k.y);
  }
}

// Row r of the lane sees positions [from[r], to[r]); `first`: of the tile.
__device__ inline void mask_scores(float (&s)[64], int first, const int (&from)[2], const int (&to)[2], int q) {
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int p = first + 8 * j + 2 * q + e;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (p < from[r] || p >= to[r]) s[4 * j + 2 * r + e] = -CUDART_INF_F;
    }
}

// The largest score of a row, -infinity where it sees nothing here.
__device__ inline void tile_maximum(float (&m)[2], const float (&s)[64]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = s[2 * r];
#pragma unroll
    for (int j = 0; j < 16; ++j) top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    m[r] = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  }
}

// Scores become weights, l their sum.
__device__ inline void tile_weights(float (&s)[64], float (&l)[2], const float (&m)[2], float factor) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float base = m[r] == -CUDART_INF_F ? 0.0f : __fmul_rn(m[r], factor);
    float even = 0, odd = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float a = exp2_fast(fmaf(s[4 * j + 2 * r], factor, -base)), b = exp2_fast(fmaf(s[4 * j + 2 * r + 1], factor, -base));
      even = __fadd_rn(even, a);
      odd = __fadd_rn(odd, b);
      s[4 * j + 2 * r] = a, s[4 * j + 2 * r + 1] = b;
    }
    float sum = __fadd_rn(even, odd);
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
    l[r] = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
  }
}

// Weights in the layout of operand A: p[t] is positions 16 t .. + 15.
template <class T>
__device__ inline void pack_weights(uint32_t (&p)[8][4], const float (&s)[64]) {
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r) p[j / 2][j % 2 * 2 + r] = pack<T>(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]);
}

// All three. fp8: weights stay in s, for the scales of V (lib/flash_fp8.h).
template <class T>
__device__ inline void softmax_tile([[maybe_unused]] uint32_t (&p)[8][4], float (&m)[2], float (&l)[2], float (&s)[64], float factor) {
  tile_maximum(m, s);
  tile_weights(s, l, m, factor);
  if constexpr (!kIsFp8<T>) pack_weights<T>(p, s);
}

// What came before and a tile: both are scaled to the larger maximum. A tile that a row does not see leaves it as it was, to the bit.
__device__ inline void fold(float& m, float& l, float m2, float l2, float factor, float& keep, float& take) {
  const float top = fmaxf(m, m2), base = top == -CUDART_INF_F ? 0.0f : top;
  keep = exp2_fast(__fmul_rn(__fsub_rn(m, base), factor));
  take = exp2_fast(__fmul_rn(__fsub_rn(m2, base), factor));
  l = fmaf(l2, take, __fmul_rn(l, keep));
  m = top;
}
__device__ inline float folded(float o, float o2, float keep, float take) { return fmaf(o2, take, __fmul_rn(o, keep)); }

// One over the sum of weights, with the sink's share.
__device__ inline float norm_of(float m, float l, float factor, const float* sink) {
  if (sink) l = __fadd_rn(l, exp2_fast(fmaf(*sink, kLog2e, -__fmul_rn(m, factor))));
  return __frcp_rn(l);
}

// Operand A of 16 queries: kSteps of 16 dimensions; row(r) gives the f32 query of row g + 8 r, or null.
template <class T, int kSteps, class Row>
__device__ inline void load_queries(uint32_t (&a)[kSteps][4], int q, Row&& row) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float* x = row(r);
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 v = x ? *reinterpret_cast<const float2*>(x + 16 * k + 8 * h + 2 * q) : float2{0, 0};
        a[k][2 * h + r] = pack<T>(v.x, v.y);
      }
  }
}

}  // namespace ridge::cuda
