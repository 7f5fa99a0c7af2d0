// K and V in fp8 (formats/kv_fp8.h) for the arithmetic of lib/flash.h: queries and weights are rounded to bf16, in which codes are exact; scores take their position's
// scale of K after the product, weights that of V before they are rounded. Pages hold codes as other formats do numbers, and scales [kv_head][position] behind them.
//
// A code's bits dropped into a bf16's exponent and mantissa are its value times 2^-120 (subnormals included), and one multiplication brings it back. A word's
// bytes 0 and 2 become one operand, 1 and 3 the other: no byte crosses a half word. So along the 16 dimensions of an MMA queries and keys have the even ones first,
// then the odd ones, in every kernel, since the order may count in the last bit; the 16 dimensions of V in a product leave by mma.sync as even ones and odd ones.
#pragma once
#include <cuda_fp8.h>

#include "cuda/lib/flash_mma.h"
#include "formats/kv_fp8.h"

namespace ridge::cuda {

__device__ inline uint32_t bf16_of_code_bits(uint32_t bits) {
  const uint32_t factor = 0x7B807B80u;                                      // 2^120 twice
  const __nv_bfloat162 v = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits), *reinterpret_cast<const __nv_bfloat162*>(&factor));
  return *reinterpret_cast<const uint32_t*>(&v);
}

// Codes 0 and 2 of a word, and 1 and 3, in bf16. Each code becomes a half word with its sign repeated above it; shifted by 4, bit 15 and bits 10..4 are what a bf16 wants.
__device__ inline void widen_codes(uint32_t& even, uint32_t& odd, uint32_t codes) {
  asm("prmt.b32 %0, %1, 0, 0xA280;" : "=r"(even) : "r"(codes));              // bytes 0, sign of 0, 2, sign of 2
  asm("prmt.b32 %0, %1, 0, 0xB391;" : "=r"(odd) : "r"(codes));
  even = bf16_of_code_bits(even << 4 & 0x87F087F0u);
  odd = bf16_of_code_bits(odd << 4 & 0x87F087F0u);
}

// Where chunk c (16 codes) of row r lies in shared memory: eight rows at one chunk, as a matrix load has them, never meet in a bank.
template <int kDim>
__device__ inline int fp8_place(int r, int c) { return r * kDim + ((kDim >= 128 ? c ^ (r & 7) : c ^ (r >> 1 & 3)) << 4); }

// Operand A of 16 queries, in the order of dimensions of above.
template <int kSteps, class Row>
__device__ inline void load_queries_for_fp8(uint32_t (&a)[kSteps][4], int q, Row&& row) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float* x = row(r);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const float4 v = x ? *reinterpret_cast<const float4*>(x + 16 * k + 4 * q) : float4{0, 0, 0, 0};
      a[k][r] = pack<E4m3>(v.x, v.z);
      a[k][2 + r] = pack<E4m3>(v.y, v.w);
    }
  }
}

// s[0..3] and s[4..7]: products with positions [row, row + 8) and [row + 8, row + 16) of the keys, added.
template <int kDim>
__device__ inline void fp8_scores(float* s, const uint32_t (&queries)[kDim / 16][4], const std::byte* keys, int row, int lane) {
#pragma unroll
  for (int k = 0; k < kDim / 16; k += 2) {
    // Matrices: positions 0-7 and 8-15 at 16 dimensions, then at the next.
    uint32_t b[4], even, odd;
    load_four_matrices<false>(b, keys + fp8_place<kDim>(row + lane / 8 % 2 * 8 + lane % 8, k + lane / 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      widen_codes(even, odd, b[i]);
      flash_mma<E4m3>(s + i % 2 * 4, queries[k + i / 2], even, odd);
    }
  }
}

// out += weights x values over positions [row, row + 32), for the 16 dimensions of chunk c: out[4 o + 2 r + e] is row g + 8 r, dimension 4 q + 2 e + o.
template <int kDim>
__device__ inline void fp8_values(float* out, const uint32_t (&first)[4], const uint32_t (&second)[4], const std::byte* values, int row, int c, int lane) {
  uint32_t b[4], even[2], odd[2];
  load_four_matrices<true>(b, values + fp8_place<kDim>(row + lane, c));
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    widen_codes(even[0], odd[0], b[2 * t]);
    widen_codes(even[1], odd[1], b[2 * t + 1]);
    flash_mma<E4m3>(out, t ? second : first, even[0], even[1]);
    flash_mma<E4m3>(out + 4, t ? second : first, odd[0], odd[1]);
  }
}
// The same over positions [row, row + 16), for the chunks c and c + 1.
template <int kDim>
__device__ inline void fp8_values(float* out, const uint32_t (&weights)[4], const std::byte* values, int row, int c, int lane) {
  uint32_t b[4], even[2], odd[2];
  load_four_matrices<true>(b, values + fp8_place<kDim>(row + lane % 16, c + lane / 16));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    widen_codes(even[0], odd[0], b[2 * i]);
    widen_codes(even[1], odd[1], b[2 * i + 1]);
    flash_mma<E4m3>(out + 8 * i, weights, even[0], even[1]);
    flash_mma<E4m3>(out + 8 * i + 4, weights, odd[0], odd[1]);
  }
}
// Row r's dimensions 4 q .. 4 q + 3 of such a chunk.
__device__ inline float4 fp8_dims(const float* out, int r) { return {out[2 * r], out[4 + 2 * r], out[2 * r + 1], out[5 + 2 * r]}; }

// Scales of the four positions from p on, a multiple of four; what is not seen yet becomes 0.
__device__ inline void copy_four_scales(float* to, const KvRef& kv, int plane, const int32_t* pages, int kv_head, int p, const Seen& seen) {
  const bool any = p < seen.to && p + 4 > seen.from;
  const std::byte* from = any ? kv.scales(plane, pages[p / kv.page_size]) + int64_t{kv_head * kv.page_size + p % kv.page_size} * 4 : kv.base;
  copy_part_of_chunk(to, from, any ? min(seen.to - p, 4) * 4 : 0);
}

// The scale of a head that a warp holds.
template <int kOwn>
__device__ inline KvFp8Scale fp8_scale_of(const float (&value)[kOwn]) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) largest = max(largest, __float_as_uint(value[i]) & 0x7fffffffu);
  return kv_fp8_scale(__reduce_max_sync(0xffffffffu, largest));
}
__device__ inline uint8_t fp8_code(float value, const KvFp8Scale& scale) { return __nv_cvt_float_to_fp8(value * scale.inverse, __NV_SATFINITE, __NV_E4M3); }

}  // namespace ridge::cuda
