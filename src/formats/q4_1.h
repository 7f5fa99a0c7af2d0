// Q4_1: 32 numbers in 20 bytes (5 bits each).   x[i] = d q[i] + m,  q in [0, 15]
//
//   byte 0      2       4                                      20
//        | d f16 | m f16 | byte j: q[j] low, q[j + 16] high      |       j = 0..15
#pragma once
#include <cstdint>

#include "formats/scale_search.h"

namespace ridge {

struct BlockQ4_1 {
  static constexpr int kElems = 32;
  uint16_t d, m;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ4_1) == 20 && alignof(BlockQ4_1) == 2);

inline void decode(float* out, const BlockQ4_1& b) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(b.q[j] & 15) * d + m;
    out[j + 16] = static_cast<float>(b.q[j] >> 4) * d + m;
  }
}

inline void encode(BlockQ4_1& b, const float* x) {
  const auto [d, m] = scale_search::affine<32, 15>(x, scale_search::round_f16);
  const float id = scale_search::inverse(d);
  b.d = f32_to_f16(d);
  b.m = f32_to_f16(m);
  for (int j = 0; j < 16; ++j)
    b.q[j] = static_cast<uint8_t>(scale_search::code(x[j] - m, id, 0, 15) | scale_search::code(x[j + 16] - m, id, 0, 15) << 4);
}

}  // namespace ridge
