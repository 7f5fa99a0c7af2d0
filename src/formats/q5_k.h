// Q5_K: 256 numbers in 176 bytes (5.5 bits each), 8 groups of 32.   x[i] = d scale(g) q[i] - dmin min(g),  g = i / 32,  q in [0, 31]
//
//   byte 0      2         4                          16                               48                                176
//        | d f16 | dmin f16 | scales, mins: k_scales.h | byte l, bit g: bit 4 of q[32 g + l] | bits 0-3 placed as in Q4_K |
#pragma once
#include "formats/k_scales.h"

namespace ridge {

struct BlockQ5K {
  static constexpr int kElems = 256;
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t low[128];
};
static_assert(sizeof(BlockQ5K) == 176 && alignof(BlockQ5K) == 2);

inline void decode(float* out, const BlockQ5K& b) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int g = 0; g < 8; ++g) {
    const KScale s = unpack_k_scale(b.scales, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    for (int l = 0; l < 32; ++l) {
      const int low = (b.low[g / 2 * 32 + l] >> (g % 2 * 4)) & 15, high = (b.high[l] >> g) & 1;
      out[32 * g + l] = scale * static_cast<float>(low | high << 4) - min;
    }
  }
}

inline void encode(BlockQ5K& b, const float* x) {
  const KLines<32, 31, 63> lines(x);
  b = {.d = lines.d, .dmin = lines.dmin};
  for (int g = 0; g < 8; ++g) {
    pack_k_scale(b.scales, g, lines.group[g]);
    for (int l = 0; l < 32; ++l) {
      const int q = lines.code(x[32 * g + l], g);
      b.low[g / 2 * 32 + l] |= static_cast<uint8_t>((q & 15) << (g % 2 * 4));
      b.high[l] |= static_cast<uint8_t>((q >> 4) << g);
    }
  }
}

}  // namespace ridge
