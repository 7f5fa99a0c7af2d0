// Q4_0: 32 numbers in 18 bytes (4.5 bits each).   x[i] = d (q[i] - 8),  q in [0, 15]
//
//   byte 0      2                                      18
//        | d f16 | byte j: q[j] low, q[j + 16] high      |       j = 0..15
#pragma once
#include <cstdint>

#include "formats/scale_search.h"

namespace ridge {

struct BlockQ4_0 {
  static constexpr int kElems = 32;
  uint16_t d;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 2);

inline void decode(float* out, const BlockQ4_0& b) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((b.q[j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((b.q[j] >> 4) - 8) * d;
  }
}

inline void encode(BlockQ4_0& b, const float* x) {
  const float d = scale_search::symmetric<32, -8, 7>(x, scale_search::round_f16), id = scale_search::inverse(d);
  b.d = f32_to_f16(d);
  for (int j = 0; j < 16; ++j)
    b.q[j] = static_cast<uint8_t>((scale_search::code(x[j], id, -8, 7) + 8) | (scale_search::code(x[j + 16], id, -8, 7) + 8) << 4);
}

}  // namespace ridge
