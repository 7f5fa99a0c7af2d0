// NVFP4 as GGUF has it (type 40): 64 numbers in 36 bytes (4.5 bits each), four groups of 16 with a scale each.   x[i] = scale(i / 16) E2M1(q[i])
//
//   byte 0                4                                                                        36
//        | ue4m3 s0 s1 s2 s3 | 8 bytes per group g; its byte j: q[16 g + j] low, q[16 g + j + 8] high |       j = 0..7
//
// A tensor usually has one more scale (f32, StoredWeight::scale), chosen so that the block scales fill e4m3's range: see nvfp4_tensor_scale.
// Published safetensors hold the same numbers in planes (neighbours share a byte, scales apart): see files/quant_config.
#pragma once
#include <cstdint>
#include <limits>

#include "base/float_types.h"

namespace ridge {

struct BlockNvfp4 {
  static constexpr int kElems = 64;
  uint8_t scale[4];
  uint8_t q[32];
};
static_assert(sizeof(BlockNvfp4) == 36 && alignof(BlockNvfp4) == 1);

inline void decode(float* out, const BlockNvfp4& b) {
  for (int g = 0; g < 4; ++g) {
    const float half = ue4m3_to_f32(b.scale[g]) * 0.5f;
    for (int j = 0; j < 8; ++j) {
      const uint8_t pair = b.q[8 * g + j];
      out[16 * g + j] = static_cast<float>(kE2m1Doubled[pair & 15]) * half;
      out[16 * g + j + 8] = static_cast<float>(kE2m1Doubled[pair >> 4]) * half;
    }
  }
}

// With this tensor-wide scale the group of the largest value has the largest block scale there is: 448 * 6 * scale = absmax.
constexpr float nvfp4_tensor_scale(float absmax) {
  const float scale = absmax / (6.0f * 448.0f);
  return scale > 0 ? scale : 1.0f;
}

// The block scale of 16 numbers with the least squared error, among the e4m3 codes from a little below max/6 (nothing is clipped) to a little above max/4
// (the values near the largest one get finer neighbours).
inline uint8_t nvfp4_block_scale(const float* x) {
  float largest = 0;
  for (int i = 0; i < 16; ++i) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    largest = a > largest ? a : largest;
  }
  int best = f32_to_ue4m3(largest / 6.0f);
  const int first = best > 3 ? best - 2 : 1, last = f32_to_ue4m3(largest / 4.0f) + 1;
  float least = std::numeric_limits<float>::infinity();
  for (int code = first; code <= last && code <= 0x7e; ++code) {
    const float d = ue4m3_to_f32(static_cast<uint8_t>(code)), id = 1.0f / d;
    float error = 0;
    for (int i = 0; i < 16; ++i) {
      const float a = (x[i] < 0 ? -x[i] : x[i]) * id;
      const float half_steps = 0.5f * static_cast<float>((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f));
      const float e = a - (half_steps + static_cast<float>((a > 2.5f) + (a >= 3.5f) + 2 * (a > 5.0f)));
      error += e * e;
    }
    error *= d * d;
    if (error < least) least = error, best = code;
  }
  return static_cast<uint8_t>(best);
}

inline void encode(BlockNvfp4& b, const float* values, float tensor_scale = 1.0f) {
  const float inverse = 1.0f / tensor_scale;
  float x[64];
  for (int i = 0; i < 64; ++i) x[i] = values[i] * inverse;
  for (int g = 0; g < 4; ++g) {
    b.scale[g] = nvfp4_block_scale(x + 16 * g);
    const float d = ue4m3_to_f32(b.scale[g]), id = d > 0 ? 1.0f / d : 0.0f;
    for (int j = 0; j < 8; ++j) b.q[8 * g + j] = static_cast<uint8_t>(f32_to_e2m1(x[16 * g + j] * id) | f32_to_e2m1(x[16 * g + j + 8] * id) << 4);
  }
}

}  // namespace ridge
