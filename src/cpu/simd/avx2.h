// The vocabulary on AVX2 with FMA and F16C (Haswell, Zen and later): two ymm registers a vector, lanes 0-7 in `a`, 8-15 in `b`.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace ridge::cpu::avx2 {

struct F { __m256 a, b; };
struct I { __m256i a, b; };
struct B { __m256i a, b; };
struct Mask { __m256 a, b; };

inline Mask first_n(int n) {
  const __m256i limit = _mm256_set1_epi32(n), count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, count)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, _mm256_add_epi32(count, _mm256_set1_epi32(8))))};
}

inline F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F set1(float x) { const __m256 v = _mm256_set1_ps(x); return {v, v}; }
inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
inline F load_n(const float* p, int n) {
  if (n >= 16) return load(p);
  const Mask m = first_n(n);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.a)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
inline void store_n(float* p, F x, int n) {
  if (n >= 16) return store(p, x);
  const Mask m = first_n(n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}

inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F neg(F x) { const __m256 s = _mm256_set1_ps(-0.0f); return {_mm256_xor_ps(x.a, s), _mm256_xor_ps(x.b, s)}; }
inline F abs(F x) { const __m256 s = _mm256_set1_ps(-0.0f); return {_mm256_andnot_ps(s, x.a), _mm256_andnot_ps(s, x.b)}; }
inline F sqrt(F x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
inline F floor(F x) {
  constexpr int kMode = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}
inline F round_even(F x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}

inline Mask lt(F x, F y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)}; }
inline Mask le(F x, F y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)}; }
inline Mask gt(F x, F y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)}; }
inline Mask ge(F x, F y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)}; }
inline F select(Mask m, F x, F y) { return {_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)}; }

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store256(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store128(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }

inline I izero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I iset1(int32_t x) { const __m256i v = _mm256_set1_epi32(x); return {v, v}; }
inline I iload(const int32_t* p) { return {load256(p), load256(p + 8)}; }
inline void istore(int32_t* p, I x) { store256(p, x.a); store256(p + 8, x.b); }
inline I iadd(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I isub(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline I imul(I x, I y) { return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)}; }
inline I and_(I x, I y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline I or_(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
inline I xor_(I x, I y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
template <int n> inline I shl(I x) { return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
template <int n> inline I shr(I x) { return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)}; }
inline F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline I as_int(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline F as_float(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }

inline F load_f16(const uint16_t* p) { return {_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))}; }
inline void store_f16(uint16_t* p, F x) {
  store128(p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  store128(p + 8, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256 widen_bf16(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
inline F load_bf16(const uint16_t* p) { return {widen_bf16(load128(p)), widen_bf16(load128(p + 8))}; }
inline __m256i bf16_of(__m256 x) {
  const __m256i b = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(b, _mm256_set1_epi32(0x7fff)), odd), quiet = _mm256_or_si256(b, _mm256_set1_epi32(0x400000));
  const __m256 bits = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));   // a NaN stays one
  return _mm256_srli_epi32(_mm256_castps_si256(bits), 16);
}
inline void store_bf16(uint16_t* p, F x) {
  store256(p, _mm256_permute4x64_epi64(_mm256_packus_epi32(bf16_of(x.a), bf16_of(x.b)), 0xd8));     // packus works within 128 bits: a0 b0 a1 b1
}
// As an f16 with the same exponent bits the value is 2^-8 of what it should be: the biases are 7 and 15.
inline F load_e4m3(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(load128(p));                                             // s ssss ssss eeee mmm
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  return mul({_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))}, set1(256.0f));
}
inline F cvt_i8(const int8_t* p) {
  const __m128i v = load128(p);
  return to_float({_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))});
}
inline void store_i8(int8_t* p, I x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  store128(p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

template <class Op> inline float reduce(F x, Op op) {
  const __m256 eight = op(x.a, x.b);
  const __m256 four = op(eight, _mm256_permute2f128_ps(eight, eight, 1));
  const __m256 two = op(four, _mm256_permute_ps(four, 0x4e));
  return _mm256_cvtss_f32(op(two, _mm256_permute_ps(two, 0xb1)));
}
inline float reduce_add(F x) { return reduce(x, [](__m256 p, __m256 q) { return _mm256_add_ps(p, q); }); }
inline float reduce_max(F x) { return reduce(x, [](__m256 p, __m256 q) { return _mm256_max_ps(p, q); }); }

inline B bload(const void* p) { return {load256(p), load256(static_cast<const char*>(p) + 32)}; }
inline void bstore(void* p, B x) { store256(p, x.a); store256(static_cast<char*>(p) + 32, x.b); }
inline B bset1(uint8_t x) { const __m256i v = _mm256_set1_epi8(static_cast<char>(x)); return {v, v}; }
inline B band(B x, B y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline B bor(B x, B y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
inline B bxor(B x, B y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
inline B badd(B x, B y) { return {_mm256_add_epi8(x.a, y.a), _mm256_add_epi8(x.b, y.b)}; }
inline B bsub(B x, B y) { return {_mm256_sub_epi8(x.a, y.a), _mm256_sub_epi8(x.b, y.b)}; }
template <int n> inline B bshr(B x) { return band({_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)}, bset1(static_cast<uint8_t>(0xff >> n))); }
template <int n> inline B bshl(B x) { return band({_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)}, bset1(static_cast<uint8_t>(0xff << n))); }
inline B bshr4(B x) { return bshr<4>(x); }
inline B btable(const int8_t* t) { const __m256i v = _mm256_broadcastsi128_si256(load128(t)); return {v, v}; }
inline B lookup16(B table, B nibbles) { return {_mm256_shuffle_epi8(table.a, nibbles.a), _mm256_shuffle_epi8(table.b, nibbles.b)}; }

// vpmaddubsw saturates at 16 bits. With 0 <= w <= 127 two products stay within 2 * 127 * 128 = 32512.
inline __m256i dot_unsigned(__m256i acc, __m256i w, __m256i x) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
inline I dot4_small(I acc, B w, int32_t x) {
  const __m256i c = _mm256_set1_epi32(x);
  return {dot_unsigned(acc.a, w.a, c), dot_unsigned(acc.b, w.b, c)};
}
// Signed by signed for the whole range of both: bytes widened to 16 bits, even and odd ones apart.
inline __m256i dot_signed(__m256i acc, __m256i w, __m256i x) {
  const auto even = [](__m256i v) { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); };
  const auto odd = [](__m256i v) { return _mm256_srai_epi16(v, 8); };
  return _mm256_add_epi32(acc, _mm256_add_epi32(_mm256_madd_epi16(even(w), even(x)), _mm256_madd_epi16(odd(w), odd(x))));
}
inline I dot4(I acc, B w, int32_t x) {
  const __m256i c = _mm256_set1_epi32(x);
  return {dot_signed(acc.a, w.a, c), dot_signed(acc.b, w.b, c)};
}

}  // namespace ridge::cpu::avx2
