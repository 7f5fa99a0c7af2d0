// Words for matrix products of bf16 numbers with sums in f32, on AMX tiles. The scalar version computes the same, number by number, so that what is built of them
// can be checked on any machine, and AMX against it.
//
//   H       32 numbers of 16 bits      H hzero()  H hload(p)  H hload_n(p, n) (others 0)  H hload_halves(p, q) (16 of each)
//   H bf16_of_f16(H)                   2^-112 of it as a bf16, nearest, ties away from zero; subnormal numbers come to nothing, not finite ones to 65536 and more
//   H bf16_of_f16_or_nan(H)            the same, but not finite ones to NaNs
//   void store_pairs(p, q, x, y)       pairs (x[i], y[i]) in 2 x 16: to p those with i % 8 < 4, to q the others. That is what an unpack gives within 128 bits
//   void store_bf16(p, lo, hi)         F, F as 32 bf16, nearest, ties to even
//   void widen(lo, hi, x)              32 bf16 as F, F in the order of store_pairs
//   void unpair(lo, hi)                F, F in the order of store_pairs to that of i
//   NoSubnormals                       while there is one, they are zeros for vectors too (scalar: in products only)
//
//   TileProduct   C[16 m][16 n] (+)= A[16 m][32 k] B[32 k][16 n], where B lies in column tiles of pairs, [n][16 k][16][2]. Of every 32 of k the even ones and the odd
//                 ones are each a chain of fused multiply-adds from zero; their sum is added to C. So a row of C depends on no other row. Subnormal numbers are zeros.
#pragma once
#include "cpu/simd/vocabulary.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

// Strides in numbers.
struct TileProduct {
  float* c;
  int64_t c_stride;
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;
  int64_t b_next;                            // from one column tile to the next
  int n_chunks;                              // 32 of k each
  bool accumulate;

  void run(int n_row_tiles, int n_column_tiles) const;      // an even number of column tiles
};

#if defined(RIDGE_ISA_AVX512)

struct H { __m512i v; };
inline H hzero() { return {_mm512_setzero_si512()}; }
inline H hload(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }
inline H hload_n(const uint16_t* p, int n) { return {_mm512_maskz_loadu_epi16(n >= 32 ? ~0u : (1u << n) - 1, p)}; }
inline H hload_halves(const uint16_t* p, const uint16_t* q) { return {_mm512_inserti64x4(_mm512_castsi256_si512(load256(p)), load256(q), 1)}; }
inline H bf16_of_f16(H x) {
  const __m512i rounded = _mm512_srai_epi16(_mm512_add_epi16(x.v, _mm512_set1_epi16(4)), 3);                 // s sss eeeee mmmmmmm
  return {_mm512_and_si512(rounded, _mm512_set1_epi16(static_cast<int16_t>(0x8fff)))};
}
inline H bf16_of_f16_or_nan(H x) {
  const __mmask32 bad = _mm512_cmpge_epu16_mask(_mm512_slli_epi16(x.v, 1), _mm512_set1_epi16(static_cast<int16_t>(0xf800)));
  return {_mm512_mask_mov_epi16(bf16_of_f16(x).v, bad, _mm512_set1_epi16(0x7fc0))};
}
inline void store_pairs(uint16_t* p, uint16_t* q, H x, H y) {
  _mm512_storeu_si512(p, _mm512_unpacklo_epi16(x.v, y.v));
  _mm512_storeu_si512(q, _mm512_unpackhi_epi16(x.v, y.v));
}
inline void store_bf16(uint16_t* p, F lo, F hi) { _mm512_storeu_si512(p, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(hi.v, lo.v))); }
inline void widen(F& lo, F& hi, H x) {
  lo.v = _mm512_castsi512_ps(_mm512_unpacklo_epi16(_mm512_setzero_si512(), x.v));
  hi.v = _mm512_castsi512_ps(_mm512_unpackhi_epi16(_mm512_setzero_si512(), x.v));
}
inline void unpair(F& lo, F& hi) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23), second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  const __m512 x = lo.v, y = hi.v;
  lo.v = _mm512_permutex2var_ps(x, first, y);
  hi.v = _mm512_permutex2var_ps(x, second, y);
}

class NoSubnormals {
 public:
  NoSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }       // FTZ, DAZ
  ~NoSubnormals() { _mm_setcsr(before_); }
  NoSubnormals(const NoSubnormals&) = delete;
  NoSubnormals& operator=(const NoSubnormals&) = delete;

 private:
  unsigned before_;
};

// tmm0-3 C, tmm4 tmm5 A, tmm6 tmm7 B. C and A may have fewer rows.
struct alignas(64) TileRows {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};
struct AllTileRows {
  TileRows of[17];
  constexpr AllTileRows() {
    for (int n = 0; n < 17; ++n)
      for (int i = 0; i < 8; ++i) of[n].rows[i] = static_cast<uint8_t>(i < 6 ? n : 16);
  }
};
constexpr AllTileRows kTileRows;             // not on the stack: to GCC the instruction reads 8 bytes of it, and the stores of the others may go

// Around all products of an op; n_rows: of C that are wanted of a row tile, 1 to 16.
inline void begin_tiles(int n_rows) { _tile_loadconfig(&kTileRows.of[n_rows]); }
inline void end_tiles() { _tile_release(); }

inline void two_by_two(const TileProduct& t, int m, int n) {
  const int64_t c_bytes = 4 * t.c_stride, a_bytes = 2 * t.a_stride;
  float *c0 = t.c + 16 * (m * t.c_stride + n), *c1 = c0 + 16 * t.c_stride;
  const uint16_t *a0 = t.a + 16 * m * t.a_stride, *a1 = a0 + 16 * t.a_stride, *b0 = t.b + n * t.b_next, *b1 = b0 + t.b_next;
  if (t.accumulate) {
    _tile_loadd(0, c0, c_bytes);
    _tile_loadd(1, c0 + 16, c_bytes);
    _tile_loadd(2, c1, c_bytes);
    _tile_loadd(3, c1 + 16, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int k = 0; k < t.n_chunks; ++k, a0 += 32, a1 += 32, b0 += 512, b1 += 512) {
    _tile_loadd(4, a0, a_bytes);
    _tile_loadd(6, b0, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c0, c_bytes);
  _tile_stored(1, c0 + 16, c_bytes);
  _tile_stored(2, c1, c_bytes);
  _tile_stored(3, c1 + 16, c_bytes);
}

template <int N>                             // 2 or 4
inline void one_by(const TileProduct& t, int m, int n) {
  const int64_t c_bytes = 4 * t.c_stride, a_bytes = 2 * t.a_stride;
  float* c = t.c + 16 * (m * t.c_stride + n);
  const uint16_t *a = t.a + 16 * m * t.a_stride, *b = t.b + n * t.b_next;
  if (t.accumulate) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + 16, c_bytes);
    if constexpr (N == 4) {
      _tile_loadd(2, c + 32, c_bytes);
      _tile_loadd(3, c + 48, c_bytes);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int k = 0; k < t.n_chunks; ++k, a += 32, b += 512) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + t.b_next, 64);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (N == 4) {
      _tile_loadd(6, b + 2 * t.b_next, 64);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(7, b + 3 * t.b_next, 64);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + 16, c_bytes);
  if constexpr (N == 4) {
    _tile_stored(2, c + 32, c_bytes);
    _tile_stored(3, c + 48, c_bytes);
  }
}

inline void TileProduct::run(int n_row_tiles, int n_column_tiles) const {
  asm volatile("" ::: "memory");             // to GCC a tile load reads no memory, and what it is to find there might be stored later
  const int pairs = n_row_tiles / 2 * 2;
  for (int n = 0; n < n_column_tiles; n += 2)
    for (int m = 0; m < pairs; m += 2) two_by_two(*this, m, n);
  if (pairs == n_row_tiles) return;
  int n = 0;
  for (; n + 4 <= n_column_tiles; n += 4) one_by<4>(*this, pairs, n);
  if (n < n_column_tiles) one_by<2>(*this, pairs, n);
}

#else

struct H { uint16_t v[32]; };
inline H hload_n(const uint16_t* p, int n) {
  H x{};
  for (int i = 0; i < 32 && i < n; ++i) x.v[i] = p[i];
  return x;
}
inline H hzero() { return {}; }
inline H hload(const uint16_t* p) { return hload_n(p, 32); }
inline H hload_halves(const uint16_t* p, const uint16_t* q) {
  H x;
  for (int i = 0; i < 32; ++i) x.v[i] = i < 16 ? p[i] : q[i - 16];
  return x;
}
inline H bf16_of_f16(H x) {
  for (uint16_t& h : x.v) h = static_cast<uint16_t>((static_cast<int16_t>(h + 4) >> 3) & 0x8fff);
  return x;
}
inline H bf16_of_f16_or_nan(H x) {
  H y = bf16_of_f16(x);
  for (int i = 0; i < 32; ++i)
    if ((x.v[i] & 0x7fff) >= 0x7c00) y.v[i] = 0x7fc0;
  return y;
}
inline void store_pairs(uint16_t* p, uint16_t* q, H x, H y) {
  for (int i = 0; i < 32; ++i) {
    uint16_t* at = (i % 8 < 4 ? p : q) + 2 * (i / 8 * 4 + i % 4);
    at[0] = x.v[i], at[1] = y.v[i];
  }
}
inline void store_bf16(uint16_t* p, F lo, F hi) {
  store_bf16(p, lo);
  store_bf16(p + 16, hi);
}
inline float number_of(uint16_t bf16) {
  const uint32_t bits = (bf16 & 0x7f80) == 0 ? 0 : static_cast<uint32_t>(bf16) << 16;
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

inline void widen(F& lo, F& hi, H x) {
  float out[32];
  for (int i = 0; i < 32; ++i) out[(i % 8 < 4 ? 0 : 16) + i / 8 * 4 + i % 4] = number_of(x.v[i]);
  lo = load(out);
  hi = load(out + 16);
}
inline void unpair(F& lo, F& hi) {
  float in[32], out[32];
  store(in, lo);
  store(in + 16, hi);
  for (int i = 0; i < 32; ++i) out[i] = in[(i % 8 < 4 ? 0 : 16) + i / 8 * 4 + i % 4];
  lo = load(out);
  hi = load(out + 16);
}

struct NoSubnormals { NoSubnormals() {} };
inline void begin_tiles(int) {}
inline void end_tiles() {}

inline void TileProduct::run(int n_row_tiles, int n_column_tiles) const {
  for (int m = 0; m < 16 * n_row_tiles; ++m)
    for (int n = 0; n < 16 * n_column_tiles; ++n) {
      float sum = accumulate ? c[m * c_stride + n] : 0.0f;
      for (int k = 0; k < n_chunks; ++k) {
        const uint16_t *x = a + m * a_stride + 32 * k, *y = b + n / 16 * b_next + 512 * k + 2 * (n % 16);
        float part[2] = {};
        for (int i = 0; i < 32; ++i) part[i % 2] = __builtin_fmaf(number_of(x[i]), number_of(y[i / 2 * 32 + i % 2]), part[i % 2]);
        sum += part[0] + part[1];
      }
      c[m * c_stride + n] = sum;
    }
}

#endif

}  // namespace
}  // namespace ridge::cpu::RIDGE_ISA_NS
