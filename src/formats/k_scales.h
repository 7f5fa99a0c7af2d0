// The 12 bytes in which Q4_K and Q5_K keep eight pairs (scale, min) of six bits:
//
//   byte  j     (j < 4): scale[j] in bits 0-5, bits 4-5 of scale[j + 4] in bits 6-7
//   byte  j + 4        : min[j]   in bits 0-5, bits 4-5 of min[j + 4]   in bits 6-7
//   byte  j + 8        : low four bits of scale[j + 4] in bits 0-3, of min[j + 4] in bits 4-7
#pragma once
#include <cstdint>

#include "formats/scale_search.h"

namespace ridge {

struct KScale {
  uint8_t scale, min;
};

inline KScale unpack_k_scale(const uint8_t* packed, int j) {
  if (j < 4) return {static_cast<uint8_t>(packed[j] & 63), static_cast<uint8_t>(packed[j + 4] & 63)};
  return {static_cast<uint8_t>((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4), static_cast<uint8_t>((packed[j + 4] >> 4) | (packed[j] >> 6) << 4)};
}

inline void pack_k_scale(uint8_t* packed, int j, KScale s) {            // into zeroed bytes, any order
  if (j < 4) {
    packed[j] |= s.scale;
    packed[j + 4] |= s.min;
  } else {
    packed[j + 4] |= static_cast<uint8_t>((s.scale & 15) | (s.min & 15) << 4);
    packed[j - 4] |= static_cast<uint8_t>((s.scale >> 4) << 6);
    packed[j] |= static_cast<uint8_t>((s.min >> 4) << 6);
  }
}

// The shared part of encoding x = d scale q - dmin min for a super-block: a line per group of N, then scales and mins rounded to `levels`.
template <int N, int hi, int levels>
struct KLines {
  static constexpr int kGroups = 256 / N;
  uint16_t d, dmin;
  KScale group[kGroups];

  explicit KLines(const float* x) {
    scale_search::Line line[kGroups];
    float largest_d = 0, largest_m = 0;
    for (int g = 0; g < kGroups; ++g) {
      line[g] = scale_search::affine<N, hi>(x + g * N, [](float v) { return v; }, true);
      largest_d = line[g].d > largest_d ? line[g].d : largest_d;
      largest_m = -line[g].m > largest_m ? -line[g].m : largest_m;
    }
    d = f32_to_f16(scale_search::round_f16(largest_d / levels));
    dmin = f32_to_f16(scale_search::round_f16(largest_m / levels));
    const float id = scale_search::inverse(f16_to_f32(d)), im = scale_search::inverse(f16_to_f32(dmin));
    for (int g = 0; g < kGroups; ++g)
      group[g] = {static_cast<uint8_t>(scale_search::code(line[g].d, id, 0, levels)), static_cast<uint8_t>(scale_search::code(-line[g].m, im, 0, levels))};
  }

  int code(float x, int g) const {
    const float scale = f16_to_f32(d) * static_cast<float>(group[g].scale), min = f16_to_f32(dmin) * static_cast<float>(group[g].min);
    return scale_search::code(x + min, scale_search::inverse(scale), 0, hi);
  }
};

// The same for x = d scale q with signed scales in [-limit, limit - 1].
template <int lo, int hi, int limit>
struct KScales {
  uint16_t d;
  int8_t scale[16];

  explicit KScales(const float* x) {
    float s[16], largest = 0;
    for (int g = 0; g < 16; ++g) {
      s[g] = scale_search::symmetric<16, lo, hi>(x + g * 16, [](float v) { return v; });
      if (std::fabs(s[g]) > std::fabs(largest)) largest = s[g];
    }
    d = f32_to_f16(scale_search::round_f16(largest / -limit));
    const float d32 = f16_to_f32(d), id = scale_search::inverse(d32);
    for (int g = 0; g < 16; ++g) {
      const int middle = scale_search::code(s[g], id, -limit, limit - 1);
      float least = std::numeric_limits<float>::infinity();
      scale[g] = static_cast<int8_t>(middle);
      for (int c = middle - 1; c <= middle + 1; ++c) {
        if (c < -limit || c >= limit) continue;
        const float error = scale_search::squared_error<16>(x + g * 16, d32 * static_cast<float>(c), 0, lo, hi);
        if (error < least) least = error, scale[g] = static_cast<int8_t>(c);
      }
    }
  }

  int code(float x, int g) const { return scale_search::code(x, scale_search::inverse(f16_to_f32(d) * static_cast<float>(scale[g])), lo, hi); }
};

}  // namespace ridge
