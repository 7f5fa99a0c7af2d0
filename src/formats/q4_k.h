// Q4_K: 256 numbers in 144 bytes (4.5 bits each), 8 groups of 32.   x[i] = d scale(g) q[i] - dmin min(g),  g = i / 32,  q in [0, 15]
//
//   byte 0      2         4                          16                                                        144
//        | d f16 | dmin f16 | scales, mins: k_scales.h | four parts of 32 bytes; byte l of part p:                |
//                                                      | q[64 p + l] low, q[64 p + l + 32] high                   |
#pragma once
#include "formats/k_scales.h"

namespace ridge {

struct BlockQ4K {
  static constexpr int kElems = 256;
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t q[128];
};
static_assert(sizeof(BlockQ4K) == 144 && alignof(BlockQ4K) == 2);

inline void decode(float* out, const BlockQ4K& b) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int g = 0; g < 8; ++g) {
    const KScale s = unpack_k_scale(b.scales, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    for (int l = 0; l < 32; ++l) out[32 * g + l] = scale * static_cast<float>((b.q[g / 2 * 32 + l] >> (g % 2 * 4)) & 15) - min;
  }
}

inline void encode(BlockQ4K& b, const float* x) {
  const KLines<32, 15, 63> lines(x);
  b = {.d = lines.d, .dmin = lines.dmin};
  for (int g = 0; g < 8; ++g) {
    pack_k_scale(b.scales, g, lines.group[g]);
    for (int l = 0; l < 32; ++l) b.q[g / 2 * 32 + l] |= static_cast<uint8_t>(lines.code(x[32 * g + l], g) << (g % 2 * 4));
  }
}

}  // namespace ridge
