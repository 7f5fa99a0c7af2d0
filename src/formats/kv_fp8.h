// KV in eight bits: the numbers of one head of one position are e4m3 codes that share one f32 scale,
//   scale = largest magnitude / 448, rounded up to a power of two      code = e4m3(x / scale)      x ~ code * scale
// A power of two, so that nothing is lost when a scale comes to a code, to a score or to a weight, in whatever order; codes are floating, so that it costs them half a
// bit of their range and no precision. As an f32 it costs 3 % of heads of 128. Scales are 2^-60 to 2^60: their ratios are numbers, too. A row below is zeros; one above,
// or with a NaN or an infinity, has NaN for its scale, so that whoever reads the row gets no number.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float_types.h"

namespace ridge {

struct KvFp8Scale { float scale, inverse; };

// `bits`: the largest of the numbers' bits without their signs: of those of a NaN, an infinity and a number the first is the largest.
constexpr KvFp8Scale kv_fp8_scale(uint32_t bits) {
  constexpr uint32_t kOne = 1u << 23;                                       // of an exponent
  if (bits > float_types::bits(448 * 0x1p60f)) return {float_types::from_bits(0x7fc00000), float_types::from_bits(0x7fc00000)};
  if (bits <= float_types::bits(448 * 0x1p-61f)) return {0.0f, 0.0f};
  const uint32_t scale = ((bits + kOne / 4 - 1) & 0x7f800000) - 8 * kOne;   // 448 is 1.75 * 2^8: a larger mantissa carries into the exponent
  return {float_types::from_bits(scale), float_types::from_bits(254 * kOne - scale)};
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
