// The words that kernels are written in: vectors of 16 lanes, whatever the machine's registers are (one zmm, two ymm, four q registers, an array). A kernel
// is written once with these, and compiled once per ISA; lane order and rounding are the same everywhere, so every ISA gives the same bits.
//
// Each ISA's header (scalar.h neon.h avx2.h avx512.h) defines them in a namespace of its own, ridge::cpu::<isa>; kernels open it as RIDGE_ISA_NS.
//   F       16 floats          I       16 int32          B       64 bytes (16 groups of 4, as integer dot instructions take them)      Mask   16 truth values
//
//   F zero()  F set1(float)  F load(const float*)  void store(float*, F)   F load_n(const float*, n) / store_n (first n lanes; other lanes 0 / untouched)
//   F add sub mul div min max (F, F)   F fma(a, b, c) = a*b + c rounded once   F neg abs sqrt   F select(mask, a, b)   Mask lt le gt ge (F, F)  Mask first_n(n)
//   min is a < b ? a : b and max is a > b ? a : b, lane by lane (so the second wins on a NaN and on zeros of two signs)
//   F to_float(I)   I to_int(F) (nearest, ties to even)   F floor(F) round_even(F)   I as_int(F)  F as_float(I)  I shl<n>(I) shr<n>(I) (logical) and_ or_ xor_ (I, I)
//   F load_f16(const uint16_t*)  F load_bf16(const uint16_t*)   void store_f16(uint16_t*, F)  void store_bf16(uint16_t*, F)  (round to nearest even)
//   F load_e4m3(const uint8_t*)  16 e4m3 bytes, exact (0x7f, the type's NaN, reads as 480: whoever packs scales keeps it out)
//   float reduce_add(F)  float reduce_max(F)   in one fixed tree order: lanes i and i+8, then +4, +2, +1
//   I izero()  I iset1(int32_t)  I iload/istore(int32_t*)  I iadd isub imul
//   void store_i8(int8_t*, I)    16 int32 known to fit as int8
//   B bload(const void*)  void bstore(void*, B)   B band bor bxor badd bsub (bytes)   B bshr<n>(B) bshl<n>(B) (each byte on its own; bshr4 = bshr<4>)
//   B btable(const int8_t t[16])  B lookup16(B table, B nibbles)   B bset1(uint8_t)   F cvt_i8(const int8_t*)  16 int8 as floats
//   I dot4(I acc, B w, int32_t x)      acc[n] += sum over j<4 of int8 w[4n+j] * int8 x_j: signed by signed, exact (x86: offset trick inside)
//   I dot4_small(I acc, B w, int32_t x)   the same where 0 <= w <= 127 is known (plain dpbusd, maddubs, sdot)
// Transcendentals built on these (math.h): exp, tanh, silu, gelu; one polynomial each, the same on every ISA.
#pragma once

#if defined(RIDGE_ISA_AVX512)
#define RIDGE_ISA_NS avx512
#include "cpu/simd/avx512.h"
#elif defined(RIDGE_ISA_AVX2)
#define RIDGE_ISA_NS avx2
#include "cpu/simd/avx2.h"
#elif defined(RIDGE_ISA_NEON)
#define RIDGE_ISA_NS neon
#include "cpu/simd/neon.h"
#else
#define RIDGE_ISA_NS scalar
#include "cpu/simd/scalar.h"
#endif

namespace ridge::cpu::RIDGE_ISA_NS {

// How many F a kernel may keep as accumulators beside what it loads.
#if defined(RIDGE_ISA_AVX512)
inline constexpr int kAccumulators = 16;     // of 32 zmm
#elif defined(RIDGE_ISA_AVX2) || defined(RIDGE_ISA_NEON)
inline constexpr int kAccumulators = 4;      // of 16 ymm, two to an F; of 32 q registers, four to an F
#else
inline constexpr int kAccumulators = 1;      // an array stays in memory anyway, and unrolled loops over it take minutes to compile
#endif

// Whether it pays to ask for memory that is read in pieces, page by page: where the machine's own streams do not bridge the jumps (Neoverse N1).
#if defined(RIDGE_ISA_NEON)
inline constexpr bool kAsksAhead = true;
#else
inline constexpr bool kAsksAhead = false;
#endif

}  // namespace ridge::cpu::RIDGE_ISA_NS
