// Q2_K: 256 numbers in 84 bytes (2.625 bits each), 16 groups of 16.   x[i] = d scale(g) q[i] - dmin min(g),  g = i / 16,  q in [0, 3]
//
//   byte 0                                16                                                       80      82        84
//        | byte g: scale(g) low, min(g) high | two halves of 32 bytes; byte l of half h holds, two     | d f16 | dmin f16 |
//                                            | bits each, q[128 h + l], + 32, + 64, + 96 upwards       |
#pragma once
#include "formats/k_scales.h"

namespace ridge {

struct BlockQ2K {
  static constexpr int kElems = 256;
  uint8_t scales[16];
  uint8_t q[64];
  uint16_t d, dmin;
};
static_assert(sizeof(BlockQ2K) == 84 && alignof(BlockQ2K) == 2);

inline void decode(float* out, const BlockQ2K& b) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int i = 0; i < 256; ++i) {
    const uint8_t group = b.scales[i / 16];
    const float scale = d * static_cast<float>(group & 15), min = dmin * static_cast<float>(group >> 4);
    const int q = (b.q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    out[i] = scale * static_cast<float>(q) - min;
  }
}

inline void encode(BlockQ2K& b, const float* x) {
  const KLines<16, 3, 15> lines(x);
  b = {.d = lines.d, .dmin = lines.dmin};
  for (int g = 0; g < 16; ++g) b.scales[g] = static_cast<uint8_t>(lines.group[g].scale | lines.group[g].min << 4);
  for (int i = 0; i < 256; ++i) b.q[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(lines.code(x[i], i / 16) << (i % 128 / 32 * 2));
}

}  // namespace ridge
