// The small floating-point types of checkpoints and KV caches, as bits, and their exact conversion from and to float. Rounding is to nearest, ties to even.
//
//   name   sign exp man  bias  largest   above the largest finite value
//   f16      1   5   10   15    65504    infinity
//   bf16     1   8    7  127   3.4e38    infinity
//   e4m3     1   4    3    7      448    saturates (the type has a NaN, 0x7f, and no infinity)
//   e5m2     1   5    2   15    57344    infinity
//   ue4m3    0   4    3    7      448    saturates; the byte's top bit is ignored and 0x7f reads as 0: the block scales of GGUF's nvfp4
//   e8m0     0   8    0  127    2^127    saturates; a power of two, 0xff is NaN: the block scales of MX formats
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace ridge {

static_assert(std::endian::native == std::endian::little, "weights are read as they lie in the file, which is little-endian");

namespace float_types {

// |x| rounded to a type of E exponent and M mantissa bits with IEEE bias; exponents past the type's range come out as larger codes, for the caller to clamp.
template <int E, int M>
constexpr uint32_t round_magnitude(uint32_t magnitude) {
  constexpr int kBias = (1 << (E - 1)) - 1;
  constexpr uint32_t kShift = 23 - M;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= 1 - kBias) {
    const uint32_t rounded = magnitude + ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1);
    return (rounded >> kShift) - (static_cast<uint32_t>(127 - kBias) << M);
  }
  const int extra = 1 - kBias - exponent;                              // how far below the normal range
  if (extra > M + 2) return 0;
  const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000, shift = kShift + static_cast<uint32_t>(extra);
  return (mantissa + ((1u << (shift - 1)) - 1) + ((mantissa >> shift) & 1)) >> shift;
}

constexpr uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
constexpr float from_bits(uint32_t b) { return std::bit_cast<float>(b); }

}  // namespace float_types

constexpr float bf16_to_f32(uint16_t b) { return float_types::from_bits(static_cast<uint32_t>(b) << 16); }

constexpr uint16_t f32_to_bf16(float x) {
  const uint32_t b = float_types::bits(x);
  if ((b & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((b >> 16) | 0x40);    // a NaN stays one
  return static_cast<uint16_t>((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}

constexpr float f16_to_f32(uint16_t h) {
  uint32_t b = static_cast<uint32_t>(h & 0x7fff) << 13;
  const uint32_t exponent = b & 0x0f800000;
  b += 112u << 23;
  if (exponent == 0x0f800000) b += 112u << 23;                          // infinity and NaN
  if (exponent == 0) b = float_types::bits(float_types::from_bits(b + (1u << 23)) - float_types::from_bits(113u << 23));     // zero and subnormals: no denormal floats are touched
  return float_types::from_bits(b | static_cast<uint32_t>(h & 0x8000) << 16);
}

constexpr uint16_t f32_to_f16(float x) {
  const uint32_t b = float_types::bits(x), sign = (b >> 16) & 0x8000, magnitude = b & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  const uint32_t code = magnitude >= 0x47800000 ? 0x7c00 : float_types::round_magnitude<5, 10>(magnitude);
  return static_cast<uint16_t>(sign | code);
}

constexpr float e4m3_to_f32(uint8_t v) {
  const uint32_t sign = static_cast<uint32_t>(v & 0x80) << 24, exponent = (v >> 3) & 15, mantissa = v & 7;
  if ((v & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f : float_types::from_bits((exponent + 120) << 23 | mantissa << 20);
  return float_types::from_bits(float_types::bits(magnitude) | sign);
}

constexpr uint8_t f32_to_e4m3(float x) {
  const uint32_t b = float_types::bits(x), sign = (b >> 24) & 0x80, magnitude = b & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint8_t>(sign | 0x7f);
  const uint32_t code = magnitude >= 0x43e00000 ? 0x7e : float_types::round_magnitude<4, 3>(magnitude);     // 448 and above
  return static_cast<uint8_t>(sign | (code > 0x7e ? 0x7e : code));
}

constexpr float e5m2_to_f32(uint8_t v) { return f16_to_f32(static_cast<uint16_t>(v << 8)); }

constexpr uint8_t f32_to_e5m2(float x) {
  const uint32_t b = float_types::bits(x), sign = (b >> 24) & 0x80, magnitude = b & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint8_t>(sign | 0x7e);
  const uint32_t code = magnitude >= 0x47800000 ? 0x7c : float_types::round_magnitude<5, 2>(magnitude);
  return static_cast<uint8_t>(sign | code);
}

constexpr float ue4m3_to_f32(uint8_t v) {
  if (v == 0x7f) return 0.0f;
  const uint32_t exponent = (v >> 3) & 15, mantissa = v & 7;
  return exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f : float_types::from_bits((exponent + 120) << 23 | mantissa << 20);
}

constexpr uint8_t f32_to_ue4m3(float x) { return x > 0 ? f32_to_e4m3(x) & 0x7f : 0; }

constexpr float e8m0_to_f32(uint8_t v) {
  if (v == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return float_types::from_bits(v == 0 ? 0x00400000 : static_cast<uint32_t>(v) << 23);
}

// The power of two nearest to x > 0 in the mean of squares of what it scales: rounds up from 1.5 times a power of two.
constexpr uint8_t f32_to_e8m0(float x) {
  if (!(x > 0)) return 0;
  const uint32_t code = (float_types::bits(x) + 0x400000) >> 23;
  return static_cast<uint8_t>(code > 254 ? 254 : code);
}

// E2M1, the four-bit float of NVFP4 and MXFP4: bit 3 is the sign. Doubled, its values are small integers.
inline constexpr std::array<float, 16> kE2m1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
inline constexpr std::array<int8_t, 16> kE2m1Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Code of the nearest E2M1 value, ties to the even code; saturates at 6. A NaN becomes 0.
constexpr uint8_t f32_to_e2m1(float x) {
  const float a = x < 0 ? -x : x;
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(code | (x < 0 ? 8 : 0));
}

}  // namespace ridge
