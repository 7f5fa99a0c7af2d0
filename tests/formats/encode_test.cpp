// Encoders against plain rounding with the largest value's scale, on weights as models have them and on blocks made to be awkward.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "formats/format.h"
#include "formats/kv_fp8.h"
#include "formats/nvfp4.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q8_0.h"

namespace ridge {
namespace {

std::vector<float> random_weights(size_t n, unsigned seed, float sigma = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  for (size_t i = 0; i < n; i += 97) x[i] *= 6;             // outliers, as real weights have
  return x;
}

double squared_error(const std::vector<float>& x, const std::vector<float>& y) {
  double e = 0;
  for (size_t i = 0; i < x.size(); ++i) e += (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
  return e;
}

std::vector<float> round_trip(FormatId id, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> blocks(static_cast<size_t>(row_bytes(id, n)));
  format(id).encode_row(blocks.data(), x.data(), n);
  std::vector<float> y(x.size());
  format(id).decode_row(y.data(), blocks.data(), n);
  return y;
}

// Plain rounding: the scale of the largest magnitude, rounded to f16, and the nearest code.
using BlockRounder = std::function<void(float* out, const float* x)>;

void plain_symmetric(float* out, const float* x, int n, float divisor, float lo, float hi) {
  float largest = 0;
  for (int i = 0; i < n; ++i)
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  const float d = f16_to_f32(f32_to_f16(divisor < 0 ? largest / divisor : std::fabs(largest) / divisor));
  for (int i = 0; i < n; ++i) out[i] = d == 0 ? 0 : d * std::clamp(std::nearbyint(x[i] / d), lo, hi);
}

void plain_affine(float* out, const float* x, int n, float levels) {
  const auto [min, max] = std::minmax_element(x, x + n);
  const float d = f16_to_f32(f32_to_f16((*max - *min) / levels)), m = f16_to_f32(f32_to_f16(*min));
  for (int i = 0; i < n; ++i) out[i] = d == 0 ? m : m + d * std::clamp(std::nearbyint((x[i] - m) / d), 0.0f, levels);
}

void plain_nvfp4(float* out, const float* x) {
  for (int g = 0; g < 64; g += 16) {
    float largest = 0;
    for (int i = g; i < g + 16; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float d = e4m3_to_f32(f32_to_e4m3(largest / 6));
    for (int i = g; i < g + 16; ++i) out[i] = d == 0 ? 0 : d * kE2m1[f32_to_e2m1(x[i] / d)];
  }
}

struct Plain {
  FormatId id;
  BlockRounder round;
};

const Plain kPlain[] = {
    {FormatId::q8_0, [](float* y, const float* x) { plain_symmetric(y, x, 32, 127, -127, 127); }},
    {FormatId::q4_0, [](float* y, const float* x) { plain_symmetric(y, x, 32, -8, -8, 7); }},
    {FormatId::q5_0, [](float* y, const float* x) { plain_symmetric(y, x, 32, -16, -16, 15); }},
    {FormatId::q4_1, [](float* y, const float* x) { plain_affine(y, x, 32, 15); }},
    {FormatId::q5_1, [](float* y, const float* x) { plain_affine(y, x, 32, 31); }},
    {FormatId::nvfp4, plain_nvfp4},
};

TEST(Encode, NoBlockIsWorseThanPlainRounding) {
  std::vector<float> x = random_weights(256 * 400, 3);
  for (int i = 0; i < 256; ++i) x[static_cast<size_t>(i)] = i % 32 == 5 ? 1.0f : 0.0f;                       // one value alone
  for (int i = 256; i < 512; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i % 2) - 0.5f;              // two values
  for (int i = 512; i < 768; ++i) x[static_cast<size_t>(i)] = 1e-6f * static_cast<float>(i % 7);             // near the smallest scales
  for (const Plain& plain : kPlain) {
    const int n = format(plain.id).block_elems;
    const std::vector<float> y = round_trip(plain.id, x);
    std::vector<float> z(x.size());
    double worse = 0;
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(n)) {
      plain.round(z.data() + at, x.data() + at);
      double ours = 0, theirs = 0;
      for (size_t i = at; i < at + static_cast<size_t>(n); ++i) ours += std::pow(x[i] - y[i], 2), theirs += std::pow(x[i] - z[i], 2);
      worse = std::max(worse, ours - theirs * (1 + 1e-4));
    }
    EXPECT_LE(worse, 1e-12) << format(plain.id).name;
    EXPECT_LT(squared_error(x, y), squared_error(x, z)) << format(plain.id).name;
  }
}

TEST(Encode, TheScaleFoundIsNearlyTheBestOfAll) {
  const std::vector<float> x = random_weights(32 * 200, 4);
  double ours = 0, best = 0, plain = 0;
  for (size_t at = 0; at < x.size(); at += 32) {
    const float* block = x.data() + at;
    float y[32], largest = 0;
    BlockQ4_0 b;
    encode(b, block);
    decode(y, b);
    for (int i = 0; i < 32; ++i) ours += std::pow(block[i] - y[i], 2), largest = std::max(largest, std::fabs(block[i]));
    double least = INFINITY;
    for (int k = 400; k <= 1200; ++k)
      for (const float sign : {-1.0f, 1.0f}) {
        const float d = f16_to_f32(f32_to_f16(sign * largest / (0.01f * static_cast<float>(k))));
        double e = 0;
        for (int i = 0; i < 32; ++i) e += std::pow(block[i] - d * std::clamp(std::nearbyint(block[i] / d), -8.0f, 7.0f), 2);
        least = std::min(least, e);
      }
    best += least;
    plain_symmetric(y, block, 32, -8, -8, 7);
    for (int i = 0; i < 32; ++i) plain += std::pow(block[i] - y[i], 2);
  }
  EXPECT_LT(ours, 1.02 * best);
  EXPECT_LT(ours, 0.95 * plain);
}

TEST(Encode, ErrorsStayWithinWhatTheBitsAllow) {
  const std::vector<float> x = random_weights(256 * 200, 5);
  const double power = squared_error(x, std::vector<float>(x.size()));
  // Measured on these weights and rounded up by a tenth: a guard against a worse encoder, not a law.
  const std::pair<FormatId, double> bounds[] = {{FormatId::f32, 0},       {FormatId::f16, 1e-7},    {FormatId::bf16, 4e-6},   {FormatId::fp8_e4m3, 1.1e-3}, {FormatId::fp8_e5m2, 4e-3}, {FormatId::q8_0, 6.2e-5},
                                               {FormatId::q6_k, 5.4e-4},  {FormatId::q5_0, 3.9e-3}, {FormatId::q5_1, 2e-3},   {FormatId::q5_k, 2e-3},       {FormatId::q4_0, 1.5e-2},   {FormatId::q4_1, 8e-3},
                                               {FormatId::q4_k, 8e-3},    {FormatId::nvfp4, 1e-1},  {FormatId::mxfp4, 2e-2},  {FormatId::q3_k, 3.5e-2},     {FormatId::q2_k, 1.2e-1}};
  for (const auto& [id, bound] : bounds) EXPECT_LE(squared_error(x, round_trip(id, x)) / power, bound) << format(id).name;
}

TEST(Encode, WhatAFormatDecodesToEncodesToItself) {
  for (const Format& f : all_formats()) {
    if (!f.writable) continue;
    const std::vector<float> once = round_trip(f.id, random_weights(512, 6, 1.0f));
    const std::vector<float> twice = round_trip(f.id, once);
    // Scales of scales (K formats) may settle elsewhere; the others find an exact representation again.
    const bool has_two_levels = f.block_elems == 256;
    EXPECT_LE(squared_error(once, twice), (has_two_levels ? 2e-2 : 1e-10) * squared_error(once, std::vector<float>(512))) << f.name;
  }
}

TEST(Encode, ZerosInfinitiesAndNansNeverProduceGarbageCodes) {
  for (const Format& f : all_formats()) {
    if (!f.writable) continue;
    for (const float v : round_trip(f.id, std::vector<float>(256, 0.0f))) EXPECT_EQ(v, 0.0f) << f.name;
    for (const float v : round_trip(f.id, std::vector<float>(256, 1e-30f))) EXPECT_LE(std::fabs(v), 1e-4f) << f.name;
    for (const float poison : {NAN, INFINITY, -INFINITY, 3e38f}) {
      std::vector<float> x = random_weights(256, 8);
      x[77] = poison;
      round_trip(f.id, x);                                  // under the sanitizers: no undefined conversion
    }
  }
}

TEST(Encode, TheTensorScaleOfNvfp4LetsSmallWeightsUseTheWholeRangeOfBlockScales) {
  const std::vector<float> x = random_weights(64 * 100, 9, 1e-3f);
  float absmax = 0;
  for (const float v : x) absmax = std::max(absmax, std::fabs(v));
  const float scale = nvfp4_tensor_scale(absmax);
  EXPECT_FLOAT_EQ(scale * 6 * 448, absmax);
  EXPECT_EQ(nvfp4_tensor_scale(0), 1.0f);
  std::vector<float> with(x.size()), without(x.size());
  for (size_t at = 0; at < x.size(); at += 64) {
    BlockNvfp4 b;
    encode(b, x.data() + at, scale);
    decode(with.data() + at, b);
    for (size_t i = at; i < at + 64; ++i) with[i] *= scale;
    encode(b, x.data() + at);
    decode(without.data() + at, b);
  }
  const double power = squared_error(x, std::vector<float>(x.size()));
  EXPECT_LT(squared_error(x, with) / power, 1e-2);
  EXPECT_GT(squared_error(x, without) / power, 3e-2);
}

TEST(KvFp8, RowsBelowTheScalesAreZerosAndThoseAboveOrOfNoNumbersHaveNone) {
  const auto scale_of = [](float largest) { return kv_fp8_scale(float_types::bits(largest)).scale; };
  EXPECT_EQ(scale_of(448 * 0x1p60f), 0x1p60f);
  EXPECT_EQ(scale_of(448 * 0x1p-60f), 0x1p-60f);
  EXPECT_EQ(scale_of(6.0f), 6.0f / 448);
  for (const float largest : {0.0f, 1e-40f, std::nextafter(448 * 0x1p-60f, 0.0f)}) EXPECT_EQ(scale_of(largest), 0.0f) << largest;
  for (const float largest : {std::nextafter(448 * 0x1p60f, INFINITY), 3e38f, INFINITY, NAN}) EXPECT_TRUE(std::isnan(scale_of(largest))) << largest;
  std::vector<float> x(16, 1.0f), y(16);
  std::vector<uint8_t> codes(16);
  x[5] = INFINITY;
  const float scale = encode_kv_fp8(codes.data(), x.data(), 16);
  decode_kv_fp8(y.data(), codes.data(), scale, 16);
  for (const float v : y) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace ridge
