// The words of the matmul's inner loops, beside the vocabulary: 16 activations at a time are held as the machine likes to multiply by one of them. NEON has
// them in a register and names a lane; x86 leaves them in memory, where vpdpbusd and vfmadd broadcast them for nothing.
//
//   Codes  16 int8 codes of one token, in [-127, 127]      I dot_codes<j>(acc, w, x): acc[n] += sum over i<4 of w[4n+i] * x[4j+i], exact
//   Quad   4 floats of one token                           F fma_quad<j>(w, x, acc) = w * x[j] + acc
//   dot_codes wants signed bytes as dot_ready() makes them: they stand for w + kDotOffset, and the accumulator must begin at -kDotOffset * sum(x).
//   dot_small_codes wants bytes in [0, 127] as they are.
//   Multiples    a small integer m in [-15, 15] for each of 16 outputs; B multiply_nibbles(n, m) = 4-bit codes (n - 8) * m as dot_ready() would make them
//   A block's sum begins at kDotBegin (plus what the offset asks for), and F dot_to_float(I) makes of it the number it stands for, exactly.
//
// kFewTile tokens share a pass over a packed panel (over kFewPanels of them while both fit the registers: more sums that do not wait for each other); kTile
// tokens by kPanels panels are one register tile when there are many (what the registers hold), in f32 arithmetic kFloatTile by kFloatPanels. Tiles of up to
// kSplitSums sums keep two accumulators for each: one zmm is one chain, where four q registers are four already.
#pragma once
#include <string_view>

#include "cpu/simd/vocabulary.h"

namespace ridge::cpu::RIDGE_ISA_NS {

#if defined(RIDGE_ISA_NEON) || defined(RIDGE_ISA_AVX2) || defined(RIDGE_ISA_AVX512)
inline constexpr int kUnroll = 16;           // loops over tiles: all of them
#else
inline constexpr int kUnroll = 1;            // arrays stay arrays: unrolling would only cost the compiler minutes
#endif

// The candidate with a matrix unit that this ISA's kernels have beside them, if the machine has one.
#if defined(RIDGE_ISA_NEON)
inline constexpr std::string_view kMatrixName = "i8mm";
#elif defined(RIDGE_ISA_AVX512)
inline constexpr std::string_view kMatrixName = "amx";
#else
inline constexpr std::string_view kMatrixName = "";
#endif

// Attention in bf16 (simd/tiles.h): on tiles, if the machine has them; or the same number by number, for tests that ask for it.
enum class Bf16 { none, tiles, stand_in };
#if defined(RIDGE_ISA_AVX512)
inline constexpr Bf16 kBf16 = Bf16::tiles;
#elif defined(RIDGE_ISA_SCALAR)
inline constexpr Bf16 kBf16 = Bf16::stand_in;
#else
inline constexpr Bf16 kBf16 = Bf16::none;
#endif

// Asks for what will be read from memory soon: into the second level, whose queue is longer than the first's. Inlined at once: GCC takes a function that does
// nothing but this for one without effects, and drops the calls. On Neoverse N1 the hardware's own streams do better (q4_0 12.5 GB/s a core, 10.9 with
// prefetch instructions), on Emerald Rapids worse (decoding q8_0 reads 21 GB/s on two cores, 28.6 with).
#if defined(RIDGE_ISA_NEON)
inline void prefetch(const void*) {}
#else
[[gnu::always_inline]] inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
#endif

#if defined(RIDGE_ISA_NEON)

inline constexpr int kDotOffset = 0, kSplitSums = 0, kFewTile = 3, kFewPanels = 1, kTile = 3, kPanels = 1, kFloatTile = 5, kFloatPanels = 1;
struct Codes { int8x16_t v; };
struct Quad { float32x4_t v; };
inline Codes load_codes(const int8_t* p) { return {vld1q_s8(p)}; }
inline Quad load_quad(const float* p) { return {vld1q_f32(p)}; }
inline B dot_ready(B w) { return w; }
struct Multiples { B m, begin; };
inline Multiples load_multiples(const int8_t* p) {
  static constexpr uint8_t kSpread[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  const C all = vreinterpretq_u8_s8(vld1q_s8(p)), first = vld1q_u8(kSpread);
  const auto four = [&](uint8_t row) { return vqtbl1q_u8(all, vaddq_u8(first, vdupq_n_u8(row))); };
  const B m{four(0), four(4), four(8), four(12)};
  return {m, map<B>([](C v) { return vreinterpretq_u8_s8(vnegq_s8(vshlq_n_s8(vreinterpretq_s8_u8(v), 3))); }, m)};
}
inline B multiply_nibbles(B n, Multiples f) { return map<B>([](C a, C p, C q) { return vmlaq_u8(a, p, q); }, f.begin, n, f.m); }
template <int j> inline I dot_codes(I acc, B w, Codes x) {
  return map<I>([x](W s, C p) { return vdotq_laneq_s32(s, vreinterpretq_s8_u8(p), x.v, j); }, acc, w);
}
template <int j> inline I dot_small_codes(I acc, B w, Codes x) { return dot_codes<j>(acc, w, x); }
// scvtf issues once in two cycles on Neoverse N1. A sum that begins at the bits of 1.5 * 2^23 is the bits of 1.5 * 2^23 + sum while |sum| < 2^22, and a block's
// sum is 32 * 128 * 127 at most: one subtraction, at two a cycle, gives the same float.
inline constexpr int32_t kDotBegin = 0x4b400000;
inline F dot_to_float(I x) { return sub(as_float(x), set1(12582912.0f)); }
template <int j> inline F fma_quad(F w, Quad x, F acc) {
  return map<F>([x](V p, V r) { return vfmaq_laneq_f32(r, p, x.v, j); }, w, acc);
}
// Byte j of each group of four as a number, signed or not.
template <int j> inline I signed_byte(B x) {
  return map<I>([](C p) { return vshrq_n_s32(vshlq_n_s32(vreinterpretq_s32_u8(p), 24 - 8 * j), 24); }, x);
}
template <int j> inline I unsigned_byte(B x) {
  return map<I>([](C p) { return vreinterpretq_s32_u32(vshrq_n_u32(vshlq_n_u32(vreinterpretq_u32_u8(p), 24 - 8 * j), 24)); }, x);
}

#else

struct Codes { const int8_t* p; };
struct Quad { const float* p; };
inline Codes load_codes(const int8_t* p) { return {p}; }
inline Quad load_quad(const float* p) { return {p}; }
template <int j> inline F fma_quad(F w, Quad x, F acc) { return fma(w, set1(x.p[j]), acc); }
template <int j> inline int32_t four_codes(Codes x) {
  int32_t c;
  __builtin_memcpy(&c, x.p + 4 * j, 4);
  return c;
}
template <int j> inline I dot_small_codes(I acc, B w, Codes x) { return dot4_small(acc, w, four_codes<j>(x)); }
inline constexpr int32_t kDotBegin = 0;
inline F dot_to_float(I x) { return to_float(x); }

#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)
// Nibbles are multiplied two to a 16-bit lane: (n0 + 256 n1) m - 0x0808 m + 0x8080 has (n0 - 8) m + 128 and (n1 - 8) m + 128 for bytes, with nothing to carry. A
// shuffle puts m into the high bytes of both lanes of its output.
struct alignas(64) SpreadOutputs {
  uint8_t at[64];
  constexpr SpreadOutputs() : at() { for (int i = 0; i < 64; ++i) at[i] = static_cast<uint8_t>(i % 2 == 0 ? 0x80 : i / 4); }
};
inline constexpr SpreadOutputs kSpreadOutputs;
#endif

#if defined(RIDGE_ISA_AVX512)

inline constexpr int kDotOffset = 128, kSplitSums = 4, kFewTile = 8, kFewPanels = 2, kTile = 6, kPanels = 2, kFloatTile = 8, kFloatPanels = 2;
inline B dot_ready(B w) { return bxor(w, bset1(0x80)); }
struct Multiples { __m512i m, begin; };
inline Multiples load_multiples(const int8_t* p) {
  const __m512i m = _mm512_srai_epi16(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(load128(p)), _mm512_load_si512(kSpreadOutputs.at)), 8);
  return {m, _mm512_sub_epi16(_mm512_set1_epi16(static_cast<int16_t>(0x8080)), _mm512_mullo_epi16(m, _mm512_set1_epi16(0x0808)))};
}
inline B multiply_nibbles(B n, Multiples f) { return {_mm512_add_epi16(_mm512_mullo_epi16(n.v, f.m), f.begin)}; }
template <int j> inline I dot_codes(I acc, B w, Codes x) { return dot_small_codes<j>(acc, w, x); }
template <int j> inline I signed_byte(B x) { return {_mm512_srai_epi32(_mm512_slli_epi32(x.v, 24 - 8 * j), 24)}; }
template <int j> inline I unsigned_byte(B x) { return and_(shr<8 * j>(I{x.v}), iset1(255)); }

#elif defined(RIDGE_ISA_AVX2)

inline constexpr int kDotOffset = 0, kSplitSums = 0, kFewTile = 2, kFewPanels = 1, kTile = 2, kPanels = 1, kFloatTile = 4, kFloatPanels = 1;
inline B dot_ready(B w) { return w; }
struct Multiples { __m256i m[2], begin[2]; };
inline Multiples load_multiples(const int8_t* p) {
  const __m256i all = _mm256_broadcastsi128_si256(load128(p));
  Multiples f;
  for (int i = 0; i < 2; ++i) {
    f.m[i] = _mm256_srai_epi16(_mm256_shuffle_epi8(all, load256(kSpreadOutputs.at + 32 * i)), 8);
    f.begin[i] = _mm256_sub_epi16(_mm256_set1_epi16(static_cast<int16_t>(0x8080)), _mm256_mullo_epi16(f.m[i], _mm256_set1_epi16(0x0808)));
  }
  return f;
}
inline B multiply_nibbles(B n, const Multiples& f) {
  const B plus_128{_mm256_add_epi16(_mm256_mullo_epi16(n.a, f.m[0]), f.begin[0]), _mm256_add_epi16(_mm256_mullo_epi16(n.b, f.m[1]), f.begin[1])};
  return bxor(plus_128, bset1(0x80));
}
// The sign of w goes to x, which is never -128: |w| <= 128 times |x| <= 127, twice, is 32512 at most and does not saturate.
template <int j> inline I dot_codes(I acc, B w, Codes x) {
  const __m256i c = _mm256_set1_epi32(four_codes<j>(x));
  return {dot_unsigned(acc.a, _mm256_abs_epi8(w.a), _mm256_sign_epi8(c, w.a)), dot_unsigned(acc.b, _mm256_abs_epi8(w.b), _mm256_sign_epi8(c, w.b))};
}
template <int j> inline I signed_byte(B x) {
  return {_mm256_srai_epi32(_mm256_slli_epi32(x.a, 24 - 8 * j), 24), _mm256_srai_epi32(_mm256_slli_epi32(x.b, 24 - 8 * j), 24)};
}
template <int j> inline I unsigned_byte(B x) { return and_(shr<8 * j>(I{x.a, x.b}), iset1(255)); }

#else

inline constexpr int kDotOffset = 0, kSplitSums = 0, kFewTile = 1, kFewPanels = 1, kTile = 1, kPanels = 1, kFloatTile = 1, kFloatPanels = 1;
inline B dot_ready(B w) { return w; }
struct Multiples { const int8_t* m; };
inline Multiples load_multiples(const int8_t* p) { return {p}; }
inline B multiply_nibbles(B n, Multiples f) { return bytes([&](int i) { return (n.v[i] - 8) * f.m[i / 4]; }); }
template <int j> inline I dot_codes(I acc, B w, Codes x) { return dot4(acc, w, four_codes<j>(x)); }
template <int j> inline I signed_byte(B x) { return lanes<I>([&](int i) { return static_cast<int8_t>(x.v[4 * i + j]); }); }
template <int j> inline I unsigned_byte(B x) { return lanes<I>([&](int i) { return x.v[4 * i + j]; }); }

#endif
#endif

}  // namespace ridge::cpu::RIDGE_ISA_NS
