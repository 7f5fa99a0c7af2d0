// FP8 (e4m3) weights as units (lib/unit.h): 16 outputs x 64 inputs in 1024 bytes, a lane's inputs those of bf16.
//
//   fp8           [half][lane] four words: operands 2 half and 2 half + 1, of each the inputs i = 0, 1, then i = 2, 3; a word is two of row g and two of row g + 8
//   fp8, blocks   the same and 16 bytes: the scale (f32, four times) of the unit, for weights with a scale for 128 x 128 numbers, whose tiles of 16 rows share it
//
// Scales for a tensor or a row are applied where the sums end. A code has four significant bits, so it is exact in bf16: its bits dropped into a bf16's exponent and mantissa
// are its value times 2^-120 (subnormals included), and one multiplication brings it back. A word's first pair lies where a bf16 wants it (sign at 15, the rest at 10..4 of
// each half word); the second fills the gaps: what is left of it after a rotation by 12 is the sign and the exponent, after a shift by 4 the mantissa.
// The largest codes (0x7F, 0xFF) are NaN in a file and would be 480 here: prepare() looks for them.
#pragma once
#include "cuda/lib/unit.h"

namespace ridge::cuda {

template <bool kBlocks>
struct Fp8Unit {
  static constexpr int kCodeBytes = 1024, kBytes = kCodeBytes + (kBlocks ? 16 : 0);
  static constexpr bool kHalves = false, kMinimums = false;
  static constexpr int kScales = kBlocks ? 1 : 0;
  static constexpr float kFactor = 1.0f;
  struct Held { uint4 half[2]; float scale; };
  template <class From = Streamed>
  __device__ static Held load(const std::byte* unit, int lane) {
    Held held{{From::get(reinterpret_cast<const uint4*>(unit) + lane), From::get(reinterpret_cast<const uint4*>(unit) + 32 + lane)}, 1.0f};
    if constexpr (kBlocks) held.scale = From::get(reinterpret_cast<const float*>(unit + kCodeBytes));
    return held;
  }
  // Where code number i (0: low half, 1: high half) of a pair goes: the first pair of a word is row g's, the second row g + 8's.
  __host__ __device__ static uint32_t place(uint32_t code, int pair, int i) {
    const uint32_t upright = ((code >> 7) << 15 | (code & 0x7F) << 4) << (16 * i);
    if (pair == 0) return upright;
    const uint32_t turned = upright & 0x87808780u;
    return (turned >> 12 | turned << 20) | (upright & 0x00700070u) >> 4;
  }
  __device__ static uint32_t value(uint32_t bits) {
    const uint32_t factor = 0x7B807B80u;                                    // 2^120 twice
    const __nv_bfloat162 v = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits), *reinterpret_cast<const __nv_bfloat162*>(&factor));
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  // A word: two inputs of row g and of row g + 8.
  __device__ static void decode(uint32_t& low, uint32_t& high, uint32_t word) {
    low = value(word & 0x87F087F0u);
    high = value((__funnelshift_l(word, word, 12) & 0x87808780u) | ((word << 4) & 0x00700070u));
  }
  __device__ static void decode(uint32_t (&a)[4][4], const Held& held) {
    const uint32_t words[8] = {held.half[0].x, held.half[0].y, held.half[0].z, held.half[0].w, held.half[1].x, held.half[1].y, held.half[1].z, held.half[1].w};
#pragma unroll
    for (int i = 0; i < 8; ++i) decode(a[i / 2][i % 2 * 2], a[i / 2][i % 2 * 2 + 1], words[i]);
  }
  template <int NT>
  __device__ static void multiply(float (&acc)[NT][4], const Held& held, const uint32_t (&b)[NT][8]) {
    uint32_t a[4][4];
    decode(a, held);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if constexpr (kBlocks) {
        float part[4] = {0, 0, 0, 0};
#pragma unroll
        for (int t = 0; t < 4; ++t) mma_bf16(part, a[t], b[n][2 * t], b[n][2 * t + 1]);
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[n][i] = fmaf(part[i], held.scale, acc[n][i]);
      } else {
#pragma unroll
        for (int t = 0; t < 4; ++t) mma_bf16(acc[n], a[t], b[n][2 * t], b[n][2 * t + 1]);
      }
    }
  }
};

}  // namespace ridge::cuda
