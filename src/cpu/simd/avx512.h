// The vocabulary on AVX-512 with VNNI (F, BW, VL, DQ, VNNI: Cascade Lake, Zen 4 and later): one zmm register a vector.
#pragma once
// GCC 12 warns about its own _mm512_undefined_ps wherever an intrinsic is inlined.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace ridge::cpu::avx512 {

struct F { __m512 v; };
struct I { __m512i v; };
struct B { __m512i v; };
struct Mask { __mmask16 v; };

inline Mask first_n(int n) { return {static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1)}; }

inline F zero() { return {_mm512_setzero_ps()}; }
inline F set1(float x) { return {_mm512_set1_ps(x)}; }
inline F load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x.v); }
inline F load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_n(n).v, p)}; }
inline void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first_n(n).v, x.v); }

inline F add(F x, F y) { return {_mm512_add_ps(x.v, y.v)}; }
inline F sub(F x, F y) { return {_mm512_sub_ps(x.v, y.v)}; }
inline F mul(F x, F y) { return {_mm512_mul_ps(x.v, y.v)}; }
inline F div(F x, F y) { return {_mm512_div_ps(x.v, y.v)}; }
inline F min(F x, F y) { return {_mm512_min_ps(x.v, y.v)}; }
inline F max(F x, F y) { return {_mm512_max_ps(x.v, y.v)}; }
inline F fma(F x, F y, F z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
inline F neg(F x) { return {_mm512_xor_ps(x.v, _mm512_set1_ps(-0.0f))}; }
inline F abs(F x) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), x.v)}; }
inline F sqrt(F x) { return {_mm512_sqrt_ps(x.v)}; }
inline F floor(F x) { return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
inline F round_even(F x) { return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }

inline Mask lt(F x, F y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ)}; }
inline Mask le(F x, F y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LE_OQ)}; }
inline Mask gt(F x, F y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_GT_OQ)}; }
inline Mask ge(F x, F y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_GE_OQ)}; }
inline F select(Mask m, F x, F y) { return {_mm512_mask_blend_ps(m.v, y.v, x.v)}; }

inline I izero() { return {_mm512_setzero_si512()}; }
inline I iset1(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I iload(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void istore(int32_t* p, I x) { _mm512_storeu_si512(p, x.v); }
inline I iadd(I x, I y) { return {_mm512_add_epi32(x.v, y.v)}; }
inline I isub(I x, I y) { return {_mm512_sub_epi32(x.v, y.v)}; }
inline I imul(I x, I y) { return {_mm512_mullo_epi32(x.v, y.v)}; }
inline I and_(I x, I y) { return {_mm512_and_si512(x.v, y.v)}; }
inline I or_(I x, I y) { return {_mm512_or_si512(x.v, y.v)}; }
inline I xor_(I x, I y) { return {_mm512_xor_si512(x.v, y.v)}; }
template <int n> inline I shl(I x) { return {_mm512_slli_epi32(x.v, n)}; }
template <int n> inline I shr(I x) { return {_mm512_srli_epi32(x.v, n)}; }
inline F to_float(I x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline I to_int(F x) { return {_mm512_cvtps_epi32(x.v)}; }
inline I as_int(F x) { return {_mm512_castps_si512(x.v)}; }
inline F as_float(I x) { return {_mm512_castsi512_ps(x.v)}; }

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline F load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(load256(p))}; }
inline void store_f16(uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline F load_bf16(const uint16_t* p) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(p)), 16))}; }
inline void store_bf16(uint16_t* p, F x) {
  const __m512i b = _mm512_castps_si512(x.v), odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);                                       // a NaN stays one
  const __m512i bits = _mm512_mask_or_epi32(rounded, is_nan, b, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
}
// As an f16 with the same exponent bits the value is 2^-8 of what it should be: the biases are 7 and 15.
inline F load_e4m3(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(load128(p));                                                     // s ssss ssss eeee mmm
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  return {_mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f))};
}
inline F cvt_i8(const int8_t* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p)))}; }
inline void store_i8(int8_t* p, I x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v)); }

template <class Op> inline float reduce(F x, Op op) {
  const __m256 eight = op(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m256 four = op(eight, _mm256_permute2f128_ps(eight, eight, 1));
  const __m256 two = op(four, _mm256_permute_ps(four, 0x4e));
  return _mm256_cvtss_f32(op(two, _mm256_permute_ps(two, 0xb1)));
}
inline float reduce_add(F x) { return reduce(x, [](__m256 p, __m256 q) { return _mm256_add_ps(p, q); }); }
inline float reduce_max(F x) { return reduce(x, [](__m256 p, __m256 q) { return _mm256_max_ps(p, q); }); }

inline B bload(const void* p) { return {_mm512_loadu_si512(p)}; }
inline void bstore(void* p, B x) { _mm512_storeu_si512(p, x.v); }
inline B bset1(uint8_t x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
inline B band(B x, B y) { return {_mm512_and_si512(x.v, y.v)}; }
inline B bor(B x, B y) { return {_mm512_or_si512(x.v, y.v)}; }
inline B bxor(B x, B y) { return {_mm512_xor_si512(x.v, y.v)}; }
inline B badd(B x, B y) { return {_mm512_add_epi8(x.v, y.v)}; }
inline B bsub(B x, B y) { return {_mm512_sub_epi8(x.v, y.v)}; }
template <int n> inline B bshr(B x) { return band({_mm512_srli_epi16(x.v, n)}, bset1(static_cast<uint8_t>(0xff >> n))); }
template <int n> inline B bshl(B x) { return band({_mm512_slli_epi16(x.v, n)}, bset1(static_cast<uint8_t>(0xff << n))); }
inline B bshr4(B x) { return bshr<4>(x); }
inline B btable(const int8_t* t) { return {_mm512_broadcast_i32x4(load128(t))}; }
inline B lookup16(B table, B nibbles) { return {_mm512_shuffle_epi8(table.v, nibbles.v)}; }

// vpdpbusd takes unsigned by signed: w + 128 is unsigned, and 128 times the sum of x is taken off again. Kernels that know the sums begin with that instead.
inline I dot4_small(I acc, B w, int32_t x) { return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(x))}; }
inline I dot4(I acc, B w, int32_t x) {
  const __m512i c = _mm512_set1_epi32(x), offset = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), offset, c);
  return {_mm512_sub_epi32(_mm512_dpbusd_epi32(acc.v, _mm512_xor_si512(w.v, offset), c), sums)};
}

}  // namespace ridge::cpu::avx512
