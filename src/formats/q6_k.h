// Q6_K: 256 numbers in 210 bytes (6.5625 bits each), 16 groups of 16.   x[i] = d scale(g) (q[i] - 32),  g = i / 16,  q in [0, 63], scale int8
//
//   byte 0                                          128                                     192                208     210
//        | bits 0-3: two halves of 64 bytes; byte l    | bits 4-5: two halves of 32 bytes;    | scale(0) ... (15) | d f16 |
//        | of half h: q[128 h + l] low, + 64 high      | byte l of half h: q[128 h + l], + 32, |                   |       |
//        | (l < 64)                                    | + 64, + 96, two bits each upwards     |                   |       |
#pragma once
#include "formats/k_scales.h"

namespace ridge {

struct BlockQ6K {
  static constexpr int kElems = 256;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6K) == 210 && alignof(BlockQ6K) == 2);

inline void decode(float* out, const BlockQ6K& b) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(b.scales[g]);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      const int half = i / 128, r = i % 128;
      const int low = (b.low[64 * half + r % 64] >> (r / 64 * 4)) & 15, high = (b.high[32 * half + r % 32] >> (r / 32 * 2)) & 3;
      out[i] = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

inline void encode(BlockQ6K& b, const float* x) {
  const KScales<-32, 31, 128> scales(x);
  b = {.d = scales.d};
  for (int g = 0; g < 16; ++g) {
    b.scales[g] = scales.scale[g];
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      const int half = i / 128, r = i % 128, q = scales.code(x[i], g) + 32;
      b.low[64 * half + r % 64] |= static_cast<uint8_t>((q & 15) << (r / 64 * 4));
      b.high[32 * half + r % 32] |= static_cast<uint8_t>((q >> 4) << (r / 32 * 2));
    }
  }
}

}  // namespace ridge
