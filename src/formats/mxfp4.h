// MXFP4: 32 numbers in 17 bytes (4.25 bits each).   x[i] = 2^(e - 127) E2M1(q[i])
//
//   byte 0        1                                      17
//        | e e8m0  | byte j: q[j] low, q[j + 16] high      |       j = 0..15
//
// Decoding multiplies doubled codes (integers) by half the scale, so that the largest exponents overflow exactly where llama.cpp's do.
#pragma once
#include <cstdint>
#include <limits>

#include "base/float_types.h"

namespace ridge {

struct BlockMxfp4 {
  static constexpr int kElems = 32;
  uint8_t e;
  uint8_t q[16];
};
static_assert(sizeof(BlockMxfp4) == 17 && alignof(BlockMxfp4) == 1);

// 2^(e - 128), exact down to the subnormals; e = 255 is not special.
constexpr float e8m0_half(uint8_t e) { return float_types::from_bits(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23); }

inline void decode(float* out, const BlockMxfp4& b) {
  const float half = e8m0_half(b.e);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(kE2m1Doubled[b.q[j] & 15]) * half;
    out[j + 16] = static_cast<float>(kE2m1Doubled[b.q[j] >> 4]) * half;
  }
}

inline void encode(BlockMxfp4& b, const float* x) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    largest = a > largest ? a : largest;
  }
  b = {};
  if (largest == 0) return;
  const int middle = static_cast<int>(float_types::bits(largest) >> 23) - 2;          // the exponent at which the largest is in [4, 8)
  float least = std::numeric_limits<float>::infinity();
  for (int e = middle - 1; e <= middle + 1; ++e) {
    if (e < 1 || e > 252) continue;
    const float d = e8m0_to_f32(static_cast<uint8_t>(e)), id = e8m0_to_f32(static_cast<uint8_t>(254 - e));
    float error = 0;
    for (int i = 0; i < 32; ++i) {
      const float difference = x[i] - d * kE2m1[f32_to_e2m1(x[i] * id)];
      error += difference * difference;
    }
    if (error < least) least = error, b.e = static_cast<uint8_t>(e);
  }
  if (b.e == 0) return;                                                                // nothing but numbers below 2^-124
  const float id = e8m0_to_f32(static_cast<uint8_t>(254 - b.e));
  for (int j = 0; j < 16; ++j) b.q[j] = static_cast<uint8_t>(f32_to_e2m1(x[j] * id) | f32_to_e2m1(x[j + 16] * id) << 4);
}

}  // namespace ridge
