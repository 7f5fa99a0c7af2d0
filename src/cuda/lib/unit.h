// How weights lie in device memory, chosen once for one token and for thousands: as operands of the tensor cores, weights on the 16-row side.
//
// A weight is row tiles of 16 outputs; a row tile is a run of units of 64 inputs, so that one tile is one sequential stream. Inside a unit, lane l of a warp
// (g = l / 4, q = l % 4) finds its share of four m16n8k16 A operands in one 16-byte load (bf16: in four loads of matrices, or the tensor cores read it where it lies). Which input sits at which k of an operand is free, as long
// as the activations follow; it is chosen so that a lane's activations are contiguous, and so that a block's scale covers whole operands or whole lanes:
//
//   bf16    lane's inputs 16q..16q+15, operand t takes 16q+4t..+3     [8 rows][inputs 2c, 2c+1 of each lane's: chunk c][row][q][2] bf16       2048 bytes
//   nvfp4   the same (a lane's 16 inputs are one scale block)          [lane][t] 8 codes, then [lane] scales of rows g, g+8 of block q       576
//   mxfp4   the same (half a block)                                    [lane][t] 8 codes, then [half][g] scales of rows g, g+8                544
//   q8_0    two halves of 32 inputs: lane's 8q..8q+7 of each           [half][lane] 16 int8 + 128, then f16 scales [half][16 rows]                 1088
//   q4_0    the same                                                   [lane][half][t] 8 nibbles, then f16 scales [half][16 rows]            576
//   q4_1    the same                                                   as q4_0, then f16 minimums [half][16 rows]                            640
//   fp8     as bf16: lib/fp8_unit.h                                                                                                         1024, 1040
//
// The bits of e2m1 codes (E2m1Unit::place) lie so that a pair becomes the bits of two bf16 by one shift and one mask. A pair's four bits do not tile a half word by shifts:
// three pairs leave four bits that none fits. But what two words leave can be put together into a third, of which two shifts make the last pairs of both: 8 instructions
// a word (9 where each word has a last pair in two pieces), half of the shifts to the left, which are multiplications and leave the integer pipe to the masks. A scale of nvfp4
// is kept as five bits of exponent and three of mantissa, without subnormals: then it becomes two bf16 by one multiplication and addition of integers.
// A half's (or unit's) operand t holds a lane's four inputs i = 0..3 as k = 2q, 2q+1 (i = 0, 1) and 2q+8, 2q+9 (i = 2, 3).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/lib/mma.h"

namespace ridge::cuda {

// Where a unit is read from: device memory, each byte once, or shared memory.
struct Streamed { template <class T> __device__ static T get(const T* p) { return __ldcs(p); } };
struct Staged { template <class T> __device__ static T get(const T* p) { return *p; } };

constexpr int kUnit = 64;                                                   // inputs
constexpr int kTileRows = 16;                                               // outputs

// A lane's 16 inputs of a unit for eight tokens, as they are loaded: operand B of the four products.
__device__ inline void put_inputs(uint32_t (&b)[8], const uint4& u, const uint4& v) {
  b[0] = u.x, b[1] = u.y, b[2] = u.z, b[3] = u.w, b[4] = v.x, b[5] = v.y, b[6] = v.z, b[7] = v.w;
}

// First of the 8 contiguous inputs that lane quarter q takes from half h of a unit.
template <bool kHalves>
__host__ __device__ constexpr int lane_input(int q, int h) { return kHalves ? h * 32 + q * 8 : q * 16 + h * 8; }

struct Bf16Unit {
  static constexpr int kBytes = 2048;
  static constexpr bool kHalves = false;
  static constexpr int kScales = 0;                                         // of a unit's own for sums in f32
  // Chunks of 16 bytes; those of eight rows are the matrices that ldmatrix and wgmma take. Operand t is the chunks 2t and 2t + 1.
  __host__ __device__ static constexpr int place(int row, int chunk) { return row / 8 * 1024 + chunk * 128 + row % 8 * 16; }
  struct Held { uint32_t a[4][4]; };
  template <class From = Streamed>
  __device__ static Held load(const std::byte* unit, int lane) {
    Held held;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      if constexpr (std::is_same_v<From, Staged>) load_four_matrices<false>(held.a[t], unit + place(lane % 16, 2 * t + lane / 16));
      else
#pragma unroll
        for (int p = 0; p < 4; ++p) held.a[t][p] = From::get(reinterpret_cast<const uint32_t*>(unit + place(lane / 4 + p % 2 * 8, 2 * t + p / 2)) + lane % 4);
    }
    return held;
  }
  template <int NT>
  __device__ static void multiply(float (&acc)[NT][4], const Held& held, const uint32_t (&b)[NT][8]) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
      for (int n = 0; n < NT; ++n) mma_bf16(acc[n], held.a[t], b[n][2 * t], b[n][2 * t + 1]);
    }
  }
  static constexpr float kFactor = 1.0f;
};

// Scales of nvfp4. e2m1 times e4m3 has at most 6 significant bits, so it is exact in bf16. They carry 2^118 and the end of the sum the rest of the codes' 2^126.
struct E4m3Scales {
  static constexpr int kBytes = 64;
  static constexpr float kFactor = 0x1p8f;
  // Of the two bytes for rows g and g + 8.
  __host__ __device__ static int index(int lane) { return lane; }
  // A scale of the file (e4m3, no sign) as a unit has it: (exponent + 10) << 3 | mantissa. Zero has no such form: it becomes 0 (2^-10) and its codes zeros.
  __host__ __device__ static uint32_t place(uint32_t e4m3) {
    const uint32_t exponent = e4m3 >> 3 & 15, mantissa = e4m3 & 7;
    if (exponent > 0) return (exponent + 3) << 3 | mantissa;
    if (mantissa == 0) return 0;
    const uint32_t top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;          // mantissa * 2^-9 = 2^(top - 9) * (1 + rest)
    return (top + 1) << 3 | ((mantissa << (3 - top)) & 7);
  }
  // The bits of two scales times 2^118, of a byte in each half.
  __device__ static uint32_t widen(uint32_t scales) { return scales * 0x10u + 0x75807580u; }
};

// Scales of mxfp4, 2^(e - 127), as the exponent of the bf16 that is 2^126 times as large: then an operand is the very number of the file, for every scale up to 2, and there is
// nothing to normalise. The smallest, 0.5 * 2^-127, is a subnormal of bf16 without loss, and its products are as large or small as those of f32. Above 2 (from 4
// on: weights up to 24) the exponent would not fit: prepare() keeps such a weight as bf16, where every scale is exact and overflows as f32 does.
// Blocks of zeros may have any scale, and get 0.
struct E8m0Scales {
  static constexpr int kBytes = 32;
  static constexpr float kFactor = 1.0f;
  static constexpr uint32_t kLargest = 128;
  __host__ __device__ static int index(int lane) { return lane % 4 / 2 * 8 + lane / 4; }
  __host__ __device__ static uint32_t place(uint32_t e8m0) { return e8m0 <= kLargest ? e8m0 + 126 : 0; }
  __device__ static uint32_t widen(uint32_t scales) { return scales * 0x80u; }
};

// Bits of `a` where the mask has ones, else of `b`, in one instruction.
__device__ inline uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint32_t v;
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(v) : "r"(mask), "r"(a), "r"(b));
  return v;
#else
  return (mask & a) | (~mask & b);
#endif
}

// e2m1 codes whose scales multiply them on the way to the tensor cores, without rounding. A code's bits dropped into a bf16's exponent and mantissa give its value times 2^-126
// (subnormals included).
template <class Scales>
struct E2m1Unit {
  static constexpr int kBytes = 512 + Scales::kBytes;
  static constexpr bool kHalves = false;
  static constexpr int kScales = 0;
  static constexpr float kFactor = Scales::kFactor;
  struct Held { uint4 codes; uint16_t scales; };                            // of rows g and g + 8
  template <class From = Streamed>
  __device__ static Held load(const std::byte* unit, int lane) {
    return {From::get(reinterpret_cast<const uint4*>(unit) + lane), From::get(reinterpret_cast<const uint16_t*>(unit + 512) + Scales::index(lane))};
  }
  // Both scales as bf16; a multiplication takes either of the halves twice.
  __device__ static __nv_bfloat162 widen(uint16_t scales) {
    const uint32_t bits = Scales::widen(__byte_perm(scales, 0, 0x4140));
    return *reinterpret_cast<const __nv_bfloat162*>(&bits);
  }
  // Bits of the last pairs of two words: those with kOfFirst from the first word, two places on, the others from the second.
  static constexpr uint32_t kPair = 0x81C081C0u, kOfFirst = 0x180C180Cu;
  // Pair 0 or 2 is of row g, 1 or 3 of row g + 8.
  __device__ static uint32_t decode(const uint32_t (&words)[4], int t, int pair, __nv_bfloat162 scales) {
    uint32_t bits = words[t];
    if (pair == 1) bits = words[t] << 4;
    if (pair == 2) bits = __funnelshift_l(words[t], words[t], 10);
    if (pair == 3) {
      const uint32_t both = select_bits(kOfFirst, words[t / 2 * 2] << 2, words[t / 2 * 2 + 1]);      // of words in their places: the compiler would mask before it shifts, and twice
      bits = t % 2 == 0 ? both << 6 : __funnelshift_l(both, both, 12);
    }
    bits &= kPair;
    const __nv_bfloat162 v = __hmul2(*reinterpret_cast<__nv_bfloat162*>(&bits), __bfloat162bfloat162(pair % 2 ? scales.y : scales.x));
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  // Puts code (s e e m) number i (0: low half, 1: high half) of a pair where decode() finds it and brings the sign to bit 15 and eem to bits 8..6 of its half.
  __host__ __device__ static void place(uint32_t (&words)[4], uint32_t code, int t, int pair, int i) {
    const uint32_t upright = ((code >> 3) << 15 | (code & 7) << 6) << (16 * i);
    const int by = pair == 0 ? 0 : pair == 1 ? 4 : pair == 2 ? 10 : t % 2 == 0 ? 6 : 12;
    const uint32_t bits = by == 0 ? upright : upright >> by | upright << (32 - by);
    if (pair < 3) words[t] |= bits;
    else words[t / 2 * 2] |= (bits & kOfFirst) >> 2, words[t / 2 * 2 + 1] |= bits & ~kOfFirst;
  }
  template <int NT>
  __device__ static void multiply(float (&acc)[NT][4], const Held& held, const uint32_t (&b)[NT][8]) {
    const __nv_bfloat162 scales = widen(held.scales);
    const uint32_t words[4] = {held.codes.x, held.codes.y, held.codes.z, held.codes.w};
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const uint32_t a[4] = {decode(words, t, 0, scales), decode(words, t, 1, scales), decode(words, t, 2, scales), decode(words, t, 3, scales)};
#pragma unroll
      for (int n = 0; n < NT; ++n) mma_bf16(acc[n], a, b[n][2 * t], b[n][2 * t + 1]);
    }
  }
};

using Nvfp4Unit = E2m1Unit<E4m3Scales>;
using Mxfp4Unit = E2m1Unit<E8m0Scales>;

// Formats with an f16 scale per 32: codes are small integers, exact in bf16; a half's sum is scaled once, in f32.
//
// What lies in the low eight bits of a bf16 and nothing else is, exponent and subnormals included, that number times 2^-133. One multiplication and subtraction makes it the
// code, times kSmall: as 2^133 is no bf16, all that is summed up is smaller by that. `zero` is the number that stands for it.
constexpr float kSmall = 1.0f / 64;
template <int kExponent>
__device__ inline uint32_t small_numbers(uint32_t bits, int zero) {
  const uint32_t factor = uint32_t{kExponent + 127} << 7 << 16 | uint32_t{kExponent + 127} << 7;
  const __nv_bfloat162 v = __hfma2(*reinterpret_cast<const __nv_bfloat162*>(&bits), *reinterpret_cast<const __nv_bfloat162*>(&factor), __float2bfloat162_rn(-kSmall * float(zero)));
  return *reinterpret_cast<const uint32_t*>(&v);
}

template <class Codes>
struct ScaledUnit {
  static constexpr int kCodeBytes = Codes::kBytes, kBytes = kCodeBytes + 64;
  static constexpr bool kHalves = true, kMinimums = false;
  static constexpr int kScales = 2;
  struct Held { typename Codes::Held codes; __half low[2], high[2]; };
  template <class From = Streamed>
  __device__ static Held load(const std::byte* unit, int lane) {
    Held held;
    held.codes = Codes::template load<From>(unit, lane);
    const __half* scales = reinterpret_cast<const __half*>(unit + Codes::kBytes);
#pragma unroll
    for (int h = 0; h < 2; ++h) held.low[h] = From::get(scales + h * 16 + lane / 4), held.high[h] = From::get(scales + h * 16 + 8 + lane / 4);
    return held;
  }
  template <int NT>
  __device__ static void multiply(float (&acc)[NT][4], const Held& held, const uint32_t (&b)[NT][8]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t a[2][4];
      Codes::decode(a, held.codes, h);
      const float low = __half2float(held.low[h]), high = __half2float(held.high[h]);
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        float part[4] = {0, 0, 0, 0};
        mma_bf16(part, a[0], b[n][4 * h], b[n][4 * h + 1]);
        mma_bf16(part, a[1], b[n][4 * h + 2], b[n][4 * h + 3]);
        acc[n][0] = fmaf(part[0], low, acc[n][0]);
        acc[n][1] = fmaf(part[1], low, acc[n][1]);
        acc[n][2] = fmaf(part[2], high, acc[n][2]);
        acc[n][3] = fmaf(part[3], high, acc[n][3]);
      }
    }
  }
  static constexpr float kFactor = 1 / kSmall;
};

struct Q8Codes {
  static constexpr int kBytes = 1024;
  struct Held { uint4 half[2]; };
  template <class From>
  __device__ static Held load(const std::byte* unit, int lane) {
    return {{From::get(reinterpret_cast<const uint4*>(unit) + lane), From::get(reinterpret_cast<const uint4*>(unit) + 32 + lane)}};
  }
  // A lane's 16 bytes of a half: [t][i 0 of row g, of row g + 8, i 1 of both; i 2 and 3].
  __device__ static void widen(uint32_t (&a)[4], uint32_t first, uint32_t second) {
    a[0] = small_numbers<127>(first & 0x00FF00FFu, 128), a[1] = small_numbers<127>(__byte_perm(first, 0, 0x4341), 128);
    a[2] = small_numbers<127>(second & 0x00FF00FFu, 128), a[3] = small_numbers<127>(__byte_perm(second, 0, 0x4341), 128);
  }
  __device__ static void decode(uint32_t (&a)[2][4], const Held& held, int h) {
    widen(a[0], held.half[h].x, held.half[h].y);
    widen(a[1], held.half[h].z, held.half[h].w);
  }
};

struct Q4Codes {
  static constexpr int kBytes = 512;
  struct Held { uint4 codes; };
  template <class From>
  __device__ static Held load(const std::byte* unit, int lane) { return {From::get(reinterpret_cast<const uint4*>(unit) + lane)}; }
  // Nibble p in the low half, p + 4 in the high one.
  __device__ static void widen(uint32_t (&a)[4], uint32_t word) {
#pragma unroll
    for (int p = 0; p < 4; p += 2, word >>= 8) a[p] = small_numbers<127>(word & 0x000F000Fu, 8), a[p + 1] = small_numbers<123>(word & 0x00F000F0u, 8);
  }
  __device__ static void decode(uint32_t (&a)[2][4], const Held& held, int h) {
    widen(a[0], h == 0 ? held.codes.x : held.codes.z);
    widen(a[1], h == 0 ? held.codes.y : held.codes.w);
  }
};

using Q8Unit = ScaledUnit<Q8Codes>;
using Q4Unit = ScaledUnit<Q4Codes>;

// q4_1: d c + m = d (c - 8) + (m + 8 d). The first part is q4_0's; the second is multiplied with the sum of a half's activations, which the tensor cores give, too: operands that
// are ones in rows 0 to 7 for the first half and in rows 8 to 15 for the second leave both sums with every lane, for the tokens whose outputs it has. (With c as it is, the parts of
// weights around zero would be large and cancel.)
struct Q41Unit {
  static constexpr int kCodeBytes = Q4Unit::kCodeBytes, kBytes = Q4Unit::kBytes + 64;
  static constexpr bool kHalves = true, kMinimums = true;
  static constexpr int kScales = 2;
  static constexpr float kFactor = Q4Unit::kFactor;
  struct Held { Q4Unit::Held scaled; __half low[2], high[2]; };
  template <class From = Streamed>
  __device__ static Held load(const std::byte* unit, int lane) {
    Held held;
    held.scaled = Q4Unit::load<From>(unit, lane);
    const __half* minimums = reinterpret_cast<const __half*>(unit + Q4Unit::kBytes);
#pragma unroll
    for (int h = 0; h < 2; ++h) held.low[h] = From::get(minimums + h * 16 + lane / 4), held.high[h] = From::get(minimums + h * 16 + 8 + lane / 4);
    return held;
  }
  // What the sum of a half's activations is multiplied with.
  __device__ static float shifted(float minimum, float scale) { return fmaf(8.0f, scale, minimum); }
  // Register p of the operand of ones, times kSmall, for operand t of a unit.
  __device__ static constexpr uint32_t ones(int t, int p) { return t / 2 == p % 2 ? 0x3C803C80u : 0u; }
  template <int NT>
  __device__ static void multiply(float (&acc)[NT][4], const Held& held, const uint32_t (&b)[NT][8]) {
    Q4Unit::multiply(acc, held.scaled, b);
    float low[2], high[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      low[h] = shifted(__half2float(held.low[h]), __half2float(held.scaled.low[h]));
      high[h] = shifted(__half2float(held.high[h]), __half2float(held.scaled.high[h]));
    }
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      float sums[4] = {0, 0, 0, 0};                                          // [half][token 2q, 2q + 1]
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const uint32_t a[4] = {ones(t, 0), ones(t, 1), ones(t, 2), ones(t, 3)};
        mma_bf16(sums, a, b[n][2 * t], b[n][2 * t + 1]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        acc[n][i] = fmaf(sums[2 + i], low[1], fmaf(sums[i], low[0], acc[n][i]));
        acc[n][2 + i] = fmaf(sums[2 + i], high[1], fmaf(sums[i], high[0], acc[n][2 + i]));
      }
    }
  }
};

}  // namespace ridge::cuda
