// Q3_K: 256 numbers in 110 bytes (3.4375 bits each), 16 groups of 16.   x[i] = d (scale(g) - 32) (q[i] - 4),  g = i / 16,  q in [0, 7], scale in [0, 63]
//
//   byte 0                                32                                  96                                       108     110
//        | byte l, bit k: bit 2 of q[32 k + l] | bits 0-1 of q, placed as in Q2_K | low four bits of scale(g): bytes g % 8,   | d f16 |
//                                              |                                  | g < 8 low half, else high half; then      |
//                                              |                                  | bits 4-5: byte 8 + g % 4, at bit 2 (g / 4)|
#pragma once
#include "formats/k_scales.h"

namespace ridge {

struct BlockQ3K {
  static constexpr int kElems = 256;
  uint8_t high[32];
  uint8_t q[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3K) == 110 && alignof(BlockQ3K) == 2);

inline int q3_k_scale(const BlockQ3K& b, int g) {
  const int low = g < 8 ? b.scales[g] & 15 : b.scales[g - 8] >> 4, high = (b.scales[8 + g % 4] >> (g / 4 * 2)) & 3;
  return (low | high << 4) - 32;
}

inline void decode(float* out, const BlockQ3K& b) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(q3_k_scale(b, i / 16));
    const int low = (b.q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3, high = (b.high[i % 32] >> (i / 32)) & 1;
    out[i] = scale * static_cast<float>((low | high << 2) - 4);
  }
}

inline void encode(BlockQ3K& b, const float* x) {
  const KScales<-4, 3, 32> scales(x);
  b = {.d = scales.d};
  for (int g = 0; g < 16; ++g) {
    const int s = scales.scale[g] + 32;
    b.scales[g % 8] |= static_cast<uint8_t>((s & 15) << (g < 8 ? 0 : 4));
    b.scales[8 + g % 4] |= static_cast<uint8_t>((s >> 4) << (g / 4 * 2));
  }
  for (int i = 0; i < 256; ++i) {
    const int q = scales.code(x[i], i / 16) + 4;
    b.q[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q & 3) << (i % 128 / 32 * 2));
    b.high[i % 32] |= static_cast<uint8_t>((q >> 2) << (i / 32));
  }
}

}  // namespace ridge
