// Q8_0: 32 numbers in 34 bytes (8.5 bits each).   x[i] = d q[i],  q in [-127, 127]
//
//   byte 0      2                                  34
//        | d f16 | q[0] q[1] ...             q[31] |       int8 each
#pragma once
#include <cstdint>

#include "formats/scale_search.h"

namespace ridge {

struct BlockQ8_0 {
  static constexpr int kElems = 32;
  uint16_t d;
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 2);

inline void decode(float* out, const BlockQ8_0& b) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(b.q[i]) * d;
}

inline void encode(BlockQ8_0& b, const float* x) {
  const float d = scale_search::symmetric<32, -127, 127>(x, scale_search::round_f16), id = scale_search::inverse(d);
  b.d = f32_to_f16(d);
  for (int i = 0; i < 32; ++i) b.q[i] = static_cast<int8_t>(scale_search::code(x[i], id, -127, 127));
}

}  // namespace ridge
