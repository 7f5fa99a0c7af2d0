// Q5_0: 32 numbers in 22 bytes (5.5 bits each).   x[i] = d (q[i] - 16),  q in [0, 31]
//
//   byte 0      2                        6                                           22
//        | d f16 | bit i: bit 4 of q[i]   | byte j: q[j] low, q[j + 16] high (bits 0-3) |       j = 0..15
#pragma once
#include <cstdint>

#include "formats/scale_search.h"

namespace ridge {

struct BlockQ5_0 {
  static constexpr int kElems = 32;
  uint16_t d;
  uint8_t high[4];
  uint8_t low[16];
};
static_assert(sizeof(BlockQ5_0) == 22 && alignof(BlockQ5_0) == 2);

inline void decode(float* out, const BlockQ5_0& b) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) {
    const int low = i < 16 ? b.low[i] & 15 : b.low[i - 16] >> 4, high = (b.high[i / 8] >> (i % 8)) & 1;
    out[i] = static_cast<float>((low | high << 4) - 16) * d;
  }
}

inline void encode(BlockQ5_0& b, const float* x) {
  const float d = scale_search::symmetric<32, -16, 15>(x, scale_search::round_f16), id = scale_search::inverse(d);
  b = {.d = f32_to_f16(d)};
  for (int i = 0; i < 32; ++i) {
    const int q = scale_search::code(x[i], id, -16, 15) + 16;
    b.low[i % 16] |= static_cast<uint8_t>((q & 15) << (i < 16 ? 0 : 4));
    b.high[i / 8] |= static_cast<uint8_t>((q >> 4) << (i % 8));
  }
}

}  // namespace ridge
