// KV in eight bits: the numbers of one head of one position are e4m3 codes that share one f32 scale,
//   scale = largest magnitude / 448      code = e4m3(x * (1 / scale))      x ~ code * scale
// An f32 and not less: codes are exact in 16 bits, so that attention multiplies codes alone and the scale comes once, after a key's product and before a value's sum,
// where its rounding would count in full; it costs 3 % of heads of 128. (Powers of two would make the errors of heads with outliers a fifth larger.) Scales are 2^-60 to 2^60, so that
// their ratios are numbers with all their bits, too. A row below is zeros; one above, or with a NaN or an infinity, has NaN for its scale, so that whoever reads it gets
// no number.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float_types.h"

namespace ridge {

struct KvFp8Scale { float scale, inverse; };

// `bits`: the largest of the numbers' bits without their signs: of those of a NaN, an infinity and a number the first is the largest.
constexpr KvFp8Scale kv_fp8_scale(uint32_t bits) {
  const float scale = float_types::from_bits(bits) / 448.0f;
  if (!(scale <= 0x1p60f)) return {float_types::from_bits(0x7fc00000), float_types::from_bits(0x7fc00000)};
  if (scale < 0x1p-60f) return {0.0f, 0.0f};
  return {scale, 1.0f / scale};
}

// One head. Returns its scale.
inline float encode_kv_fp8(uint8_t* codes, const float* x, int n) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = float_types::bits(x[i]) & 0x7fffffff;
    if (magnitude > largest) largest = magnitude;
  }
  const KvFp8Scale s = kv_fp8_scale(largest);
  for (int i = 0; i < n; ++i) codes[i] = f32_to_e4m3(x[i] * s.inverse);
  return s.scale;
}

inline void decode_kv_fp8(float* x, const uint8_t* codes, float scale, int n) {
  for (int i = 0; i < n; ++i) x[i] = e4m3_to_f32(codes[i]) * scale;
}

}  // namespace ridge
