// Small floats against their definition: sign * 2^(e - bias) * 1.m, and rounding against the nearest of all values.
#include "base/float_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ridge {
namespace {

// The value of a code by the textbook; infinity and NaN for the codes of a full exponent when the type has them.
double by_definition(uint32_t code, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<double>(code & ((1u << mantissa_bits) - 1));
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double sign = (code >> (exponent_bits + mantissa_bits)) & 1 ? -1 : 1;
  if (has_infinity && exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * INFINITY : NAN;
  const double scale = std::pow(2.0, mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(mantissa / scale, 1 - bias) : sign * std::ldexp(1 + mantissa / scale, exponent - bias);
}

template <class Code>
struct SmallFloat {
  const char* name;
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  float (*decode)(Code);
  Code (*encode)(float);
  bool is_nan(uint32_t c) const { return std::isnan(decode(static_cast<Code>(c))); }
};

const SmallFloat<uint16_t> kF16{"f16", 5, 10, true, f16_to_f32, f32_to_f16};
const SmallFloat<uint16_t> kBf16{"bf16", 8, 7, true, bf16_to_f32, f32_to_bf16};
const SmallFloat<uint8_t> kE4m3{"e4m3", 4, 3, false, e4m3_to_f32, f32_to_e4m3};
const SmallFloat<uint8_t> kE5m2{"e5m2", 5, 2, true, e5m2_to_f32, f32_to_e5m2};

template <class Code>
void every_code_decodes_and_comes_back(const SmallFloat<Code>& t) {
  for (uint32_t c = 0; c <= std::numeric_limits<Code>::max(); ++c) {
    const float v = t.decode(static_cast<Code>(c));
    if (!t.has_infinity && (c & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(v));
      continue;
    }
    const double expected = by_definition(c, t.exponent_bits, t.mantissa_bits, t.has_infinity);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(v)) << t.name << " " << c;
      EXPECT_TRUE(t.is_nan(t.encode(v)));
      continue;
    }
    ASSERT_EQ(static_cast<double>(v), expected) << t.name << " " << c;
    ASSERT_EQ(std::signbit(v), std::signbit(expected));
    ASSERT_EQ(t.encode(v), c) << t.name;
  }
}

TEST(FloatTypes, EveryCodeHasTheValueOfItsDefinitionAndComesBack) {
  every_code_decodes_and_comes_back(kF16);
  every_code_decodes_and_comes_back(kBf16);
  every_code_decodes_and_comes_back(kE4m3);
  every_code_decodes_and_comes_back(kE5m2);
}

// Around every pair of neighbours: just below, at and just above the middle.
template <class Code>
void rounds_to_nearest_even(const SmallFloat<Code>& t, uint32_t n_finite) {
  for (uint32_t c = 0; c + 1 < n_finite; ++c) {
    const float a = t.decode(static_cast<Code>(c)), b = t.decode(static_cast<Code>(c + 1));
    const double middle = (static_cast<double>(a) + static_cast<double>(b)) / 2;
    if (static_cast<double>(static_cast<float>(middle)) != middle) continue;                 // bf16's smallest: no float lies between
    const auto m = static_cast<float>(middle);
    ASSERT_EQ(t.encode(m), c % 2 == 0 ? c : c + 1) << t.name << " between " << a << " and " << b;
    ASSERT_EQ(t.encode(std::nextafter(m, 0.0f)), c) << t.name << " below the middle of " << a << " and " << b;
    ASSERT_EQ(t.encode(std::nextafter(m, INFINITY)), c + 1) << t.name << " above the middle of " << a << " and " << b;
    ASSERT_EQ(t.encode(-m), (c % 2 == 0 ? c : c + 1) | (1u << (sizeof(Code) * 8 - 1)));
  }
}

TEST(FloatTypes, RoundingIsToNearestWithTiesToEven) {
  rounds_to_nearest_even(kF16, 0x7c00);
  rounds_to_nearest_even(kBf16, 0x7f80);
  rounds_to_nearest_even(kE4m3, 0x7f);
  rounds_to_nearest_even(kE5m2, 0x7c);
}

TEST(FloatTypes, PastTheLargestValueIeeeTypesOverflowAndE4m3Saturates) {
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(1e30f), 0x7c00);
  EXPECT_EQ(f32_to_bf16(3.4e38f), 0x7f80);
  EXPECT_EQ(f32_to_e5m2(61439.0f), 0x7b);
  EXPECT_EQ(f32_to_e5m2(61440.0f), 0x7c);
  EXPECT_EQ(f32_to_e5m2(-INFINITY), 0xfc);
  EXPECT_EQ(f32_to_e4m3(449.0f), 0x7e);
  EXPECT_EQ(f32_to_e4m3(1e30f), 0x7e);
  EXPECT_EQ(f32_to_e4m3(-INFINITY), 0xfe);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(f32_to_e4m3(NAN))));
}

TEST(FloatTypes, ScalesOfBlocksReadAsTheirFormatsSay) {
  for (int c = 0; c < 0x7f; ++c) EXPECT_EQ(ue4m3_to_f32(static_cast<uint8_t>(c)), e4m3_to_f32(static_cast<uint8_t>(c)));
  EXPECT_EQ(ue4m3_to_f32(0x7f), 0.0f);
  EXPECT_EQ(f32_to_ue4m3(-1.0f), 0);
  EXPECT_EQ(f32_to_ue4m3(NAN), 0);
  for (int c = 0; c < 255; ++c) {
    EXPECT_EQ(static_cast<double>(e8m0_to_f32(static_cast<uint8_t>(c))), std::ldexp(1.0, c - 127)) << c;
    if (c > 0) {
      EXPECT_EQ(f32_to_e8m0(e8m0_to_f32(static_cast<uint8_t>(c))), c);
    }
  }
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

TEST(FloatTypes, E2m1RoundsToItsNearestValue) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> any(-8, 8);
  for (int i = 0; i < 10000; ++i) {
    const float x = any(random);
    float least = INFINITY;
    for (const float v : kE2m1) least = std::min(least, std::fabs(x - v));
    EXPECT_EQ(std::fabs(x - kE2m1[f32_to_e2m1(x)]), least) << x;
  }
  for (const auto& [x, code] : {std::pair{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4}, {2.5f, 4}, {3.5f, 6}, {5.0f, 6}, {100.0f, 7}, {-100.0f, 15}}) EXPECT_EQ(f32_to_e2m1(x), code) << x;
}

static_assert(f16_to_f32(0x3c00) == 1.0f && f32_to_bf16(1.0f) == 0x3f80 && e4m3_to_f32(0x38) == 1.0f && f32_to_e5m2(1.0f) == 0x3c);

}  // namespace
}  // namespace ridge
