// Q5_1: 32 numbers in 24 bytes (6 bits each).   x[i] = d q[i] + m,  q in [0, 31]
//
//   byte 0      2       4                        8                                           24
//        | d f16 | m f16 | bit i: bit 4 of q[i]   | byte j: q[j] low, q[j + 16] high (bits 0-3) |       j = 0..15
#pragma once
#include <cstdint>

#include "formats/scale_search.h"

namespace ridge {

struct BlockQ5_1 {
  static constexpr int kElems = 32;
  uint16_t d, m;
  uint8_t high[4];
  uint8_t low[16];
};
static_assert(sizeof(BlockQ5_1) == 24 && alignof(BlockQ5_1) == 2);

inline void decode(float* out, const BlockQ5_1& b) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 32; ++i) {
    const int low = i < 16 ? b.low[i] & 15 : b.low[i - 16] >> 4, high = (b.high[i / 8] >> (i % 8)) & 1;
    out[i] = static_cast<float>(low | high << 4) * d + m;
  }
}

inline void encode(BlockQ5_1& b, const float* x) {
  const auto [d, m] = scale_search::affine<32, 31>(x, scale_search::round_f16);
  const float id = scale_search::inverse(d);
  b = {.d = f32_to_f16(d), .m = f32_to_f16(m)};
  for (int i = 0; i < 32; ++i) {
    const int q = scale_search::code(x[i] - m, id, 0, 31);
    b.low[i % 16] |= static_cast<uint8_t>((q & 15) << (i < 16 ? 0 : 4));
    b.high[i / 8] |= static_cast<uint8_t>((q >> 4) << (i % 8));
  }
}

}  // namespace ridge
