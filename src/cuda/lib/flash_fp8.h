// K and V in fp8 (formats/kv_fp8.h) for the arithmetic of lib/flash.h: queries (at most 65504) and weights are rounded to f16, in which codes are exact; scores take their
// position's scale of K after the product, weights that of V before they are rounded. Pages hold codes as other formats do numbers, and scales [kv_head][position] behind.
//
// An f16 pair is made of two neighbouring codes. So along the 16 dimensions of an MMA queries and keys have 0 1, 4 5, 8 9, 12 13, then 2 3, 6 7, ..., in
// every kernel, since the order may count in the last bit; the 16 dimensions of V in a product leave by mma.sync as even ones and odd ones.
//
// Weights times scales have to fit f16. So scales come by a power of two, by the exponent E of the largest that a row sees in the tile: the operand is p times
// 2^(14 - E) scale, at most 2^15 and with all its bits down to 2^-29 of that, and the tile's o takes 2^(E - 14) when it is there. Neither power rounds. What a row does
// not see has no part in its E: it has the same bits alone and within a prompt.
#pragma once
#include <cuda_fp8.h>

#include "cuda/lib/flash_mma.h"
#include "formats/kv_fp8.h"

namespace ridge::cuda {

// Two codes of a word in f16, by the bytes of kBytes with and without bit 3: a byte and its sign make 16 bits with the code's sign extended, and the code's bits in an f16's
// exponent and mantissa are its value times 2^-8, subnormals included.
template <uint32_t kBytes>
__device__ inline uint32_t widened(uint32_t codes) {
#if defined(__CUDA_ARCH__)
  uint32_t extended;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(extended) : "r"(codes), "n"(kBytes));
#else
  const auto both = [&](uint32_t byte) { return uint32_t(int32_t(codes << (24 - 8 * byte)) >> 24) & 0xFFFFu; };
  const uint32_t extended = both(kBytes & 7) | both(kBytes >> 8 & 7) << 16;
#endif
  const uint32_t bits = extended << 7 & 0xBF80BF80u, factor = 0x5C005C00u;   // 2^8
  const __half2 v = __hmul2(*reinterpret_cast<const __half2*>(&bits), *reinterpret_cast<const __half2*>(&factor));
  return *reinterpret_cast<const uint32_t*>(&v);
}
// Codes 0 and 1 of a word, and 2 and 3: newer devices have an instruction for two neighbours, which takes as long as any other of the integer pipe (2.3 cycles, measured).
__device__ inline void widen_codes(uint32_t& low, uint32_t& high, uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 first, second;\nmov.b32 {first, second}, %2;\ncvt.rn.f16x2.e4m3x2 %0, first;\ncvt.rn.f16x2.e4m3x2 %1, second;\n}" : "=r"(low), "=r"(high) : "r"(codes));
#else
  low = widened<0x9180>(codes), high = widened<0xB3A2>(codes);
#endif
}
// A word of a transposed matrix, two dimensions of a position and then of the next: each dimension's two positions.
__device__ inline void widen_transposed(uint32_t& even, uint32_t& odd, uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  widen_codes(even, odd, __byte_perm(codes, 0, 0x3120));
#else
  even = widened<0xA280>(codes), odd = widened<0xB391>(codes);
#endif
}

__device__ inline uint32_t pack_query(float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t v;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
#else
  return pack<__half>(fminf(fmaxf(low, -65504.0f), 65504.0f), fminf(fmaxf(high, -65504.0f), 65504.0f));
#endif
}
// Where dimension d of a query lies in the order of above.
__device__ inline int fp8_query_place(int d) { return d / 16 * 16 + d % 4 / 2 * 8 + d % 16 / 4 * 2 + d % 2; }

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
      a[k][r] = pack_query(v.x, v.y);
      a[k][2 + r] = pack_query(v.z, v.w);
    }
  }
}

// s[8 i .. 8 i + 7]: products with positions [row + 16 i, row + 16 i + 16) of the keys, added. Matrices are asked for one step ahead, and sums take turns.
template <int kDim, int kPairs>
__device__ inline void fp8_scores(float* s, const uint32_t (&queries)[kDim / 16][4], const std::byte* keys, int row, int lane) {
  uint32_t b[2][kPairs][4];
  // Matrices: positions 0-7 and 8-15 at 16 dimensions, then at the next.
  const auto load = [&](int k) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) load_four_matrices<false>(b[k / 2 % 2][i], keys + fp8_place<kDim>(row + 16 * i + lane / 8 % 2 * 8 + lane % 8, k + lane / 16));
  };
  load(0);
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    if (k % 2 == 0 && k + 2 < kDim / 16) load(k + 2);
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t low, high;
        widen_codes(low, high, b[k / 2 % 2][i][k % 2 * 2 + half]);
        flash_mma<__half>(s + 8 * i + 4 * half, queries[k], low, high);
      }
  }
}

// out += weights x values over positions [row, row + 32), for the dimensions of chunks c to c + kChunks: out[8 i + 4 o + 2 r + e] is row g + 8 r, dimension
// 4 q + 2 e + o of chunk c + i.
template <int kDim, int kChunks>
__device__ inline void fp8_values(float* out, const uint32_t (&first)[4], const uint32_t (&second)[4], const std::byte* values, int row, int c, int lane) {
  uint32_t b[kChunks][4];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) load_four_matrices<true>(b[i], values + fp8_place<kDim>(row + lane, c + i));
#pragma unroll
  for (int t = 0; t < 2; ++t)
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      uint32_t even[2], odd[2];
      widen_transposed(even[0], odd[0], b[i][2 * t]);
      widen_transposed(even[1], odd[1], b[i][2 * t + 1]);
      flash_mma<__half>(out + 8 * i, t ? second : first, even[0], even[1]);
      flash_mma<__half>(out + 8 * i + 4, t ? second : first, odd[0], odd[1]);
    }
}
// The same over positions [row, row + 16), for the chunks c and c + 1.
template <int kDim>
__device__ inline void fp8_values(float* out, const uint32_t (&weights)[4], const std::byte* values, int row, int c, int lane) {
  uint32_t b[4], even[2], odd[2];
  load_four_matrices<true>(b, values + fp8_place<kDim>(row + lane % 16, c + lane / 16));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    widen_transposed(even[0], odd[0], b[2 * i]);
    widen_transposed(even[1], odd[1], b[2 * i + 1]);
    flash_mma<__half>(out + 8 * i, weights, even[0], even[1]);
    flash_mma<__half>(out + 8 * i + 4, weights, odd[0], odd[1]);
  }
}
// Row r's dimensions 4 q .. 4 q + 3 of such a chunk, times what is owed to o.
__device__ inline float4 fp8_dims(const float* out, int r, float owed) {
  return {__fmul_rn(out[2 * r], owed), __fmul_rn(out[4 + 2 * r], owed), __fmul_rn(out[2 * r + 1], owed), __fmul_rn(out[5 + 2 * r], owed)};
}

// What V's scales are given before they come to a tile's weights, 2^(14 - E), and what is owed to its o then, 2^(E - 14). `largest`: the bits of the largest scale.
struct ValueScaling { float given, owed; };
__device__ inline ValueScaling value_scaling(uint32_t largest) {
  const uint32_t exponent = largest == 0 ? 127u << 23 : largest & 0x7f800000u;
  return {__uint_as_float((268u << 23) - exponent), __uint_as_float(exponent - (14u << 23))};
}
// By a warp, four of the tile's positions a lane: scales are 0 where nothing is seen.
__device__ inline ValueScaling value_scaling(const float4& four) {
  return value_scaling(__reduce_max_sync(0xffffffffu, max(max(__float_as_uint(four.x), __float_as_uint(four.y)), max(__float_as_uint(four.z), __float_as_uint(four.w)))));
}
// A lane's four scales of a tile [128] of which n_unseen come before the first position that is seen.
__device__ inline float4 four_scales(const float* scales, int n_unseen, int lane) {
  float4 v = reinterpret_cast<const float4*>(scales)[lane];
  n_unseen -= 4 * lane;
  return {n_unseen > 0 ? 0 : v.x, n_unseen > 1 ? 0 : v.y, n_unseen > 2 ? 0 : v.z, n_unseen > 3 ? 0 : v.w};
}
__device__ inline float4 scaled(const float4& v, float factor) { return {__fmul_rn(v.x, factor), __fmul_rn(v.y, factor), __fmul_rn(v.z, factor), __fmul_rn(v.w, factor)}; }

// The scales of V of a tile in place, by the warp that uses them; what is owed to o.
__device__ inline float give_value_scales(float* scales, int n_unseen, int lane) {
  const float4 four = four_scales(scales, n_unseen, lane);
  const ValueScaling scaling = value_scaling(four);
  reinterpret_cast<float4*>(scales)[lane] = scaled(four, scaling.given);
  __syncwarp();
  return scaling.owed;
}

// A tile that rows see parts of, its weights in s: what the rows do not see leaves their scales.
__device__ inline void rescale_weights(float (&s)[64], float (&owed)[2], const float* given_scales, int first, const int (&from)[2], const int (&to)[2], int q) {
  uint32_t largest[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 v = *reinterpret_cast<const float2*>(given_scales + 8 * j + 2 * q);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int p = first + 8 * j + 2 * q + e;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (p >= from[r] && p < to[r]) largest[r] = max(largest[r], __float_as_uint(e ? v.y : v.x));
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    largest[r] = max(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 1));
    largest[r] = max(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 2));
    const ValueScaling more = value_scaling(largest[r]);
    owed[r] = __fmul_rn(owed[r], more.owed);
#pragma unroll
    for (int j = 0; j < 16; ++j) s[4 * j + 2 * r] = __fmul_rn(s[4 * j + 2 * r], more.given), s[4 * j + 2 * r + 1] = __fmul_rn(s[4 * j + 2 * r + 1], more.given);
  }
}

// Weights in s, by V's scales as given, to operands.
__device__ inline void pack_weights(uint32_t (&p)[8][4], const float (&s)[64], const float* given_scales, int q) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 v = *reinterpret_cast<const float2*>(given_scales + 8 * j + 2 * q);
#pragma unroll
    for (int r = 0; r < 2; ++r) p[j / 2][j % 2 * 2 + r] = pack<__half>(__fmul_rn(s[4 * j + 2 * r], v.x), __fmul_rn(s[4 * j + 2 * r + 1], v.y));
  }
}

// Pages of a tile's runs of 16 positions, run i with lane i of a warp: asked for ahead, nobody waits for the table when it is time to copy. 0 where nothing is seen.
__device__ inline int32_t pages_of_tile(const int32_t* pages, int tile, int page_size, const Seen& seen, int lane) {
  const int p = tile * kFlashTile + 16 * lane;
  return lane < kFlashTile / 16 && p < seen.to && p + 16 > seen.from ? pages[p >> (31 - __clz(page_size))] : 0;
}

// Scales of the four positions from p on, a multiple of four; what is not seen yet becomes 0.
__device__ inline void copy_four_scales(float* to, const KvRef& kv, int plane, int32_t page, int kv_head, int p, const Seen& seen) {
  const std::byte* const from = kv.scales(plane, page) + int64_t{kv_head * kv.page_size + (p & (kv.page_size - 1))} * 4;
  copy_part_of_chunk(to, from, p + 4 > seen.from ? max(min(seen.to - p, 4), 0) * 4 : 0);
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
