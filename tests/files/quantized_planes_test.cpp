// NVFP4, FP8 and MXFP4 as checkpoints publish them, in planes; and other quantizations, which are refused instead of read as numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/float_types.h"
#include "files/safetensors.h"
#include "files/safetensors_writer.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

TensorSource bytes_source(std::string name, FormatId format, std::vector<int64_t> shape, std::vector<uint8_t> bytes) {
  TensorSource t{.name = std::move(name), .format = format, .shape = std::move(shape)};
  t.encode_row = [bytes = std::move(bytes), n = static_cast<size_t>(t.cols())](std::byte* out, int64_t r) { std::memcpy(out, bytes.data() + static_cast<size_t>(r) * n, n); };
  return t;
}

// Two rows of 32 numbers: codes count up, four scales.
std::vector<TensorSource> planes(const std::string& codes_name) {
  std::vector<uint8_t> codes(32);
  for (size_t i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>((2 * i) % 16 | (2 * i + 1) % 16 << 4);
  return {bytes_source(codes_name, FormatId::u8, {2, 16}, codes), bytes_source("x.weight_scale", FormatId::fp8_e4m3, {2, 2}, {0x38, 0x40, 0x30, 0x01})};
}

void expect_planes(const StoredWeight& w, float scale) {
  EXPECT_EQ(w.format, FormatId::nvfp4);
  EXPECT_EQ(w.rows, 2);
  EXPECT_EQ(w.cols, 32);
  const float scales[4] = {1, 2, 0.5f, 1.0f / 512};
  for (int64_t r = 0; r < 2; ++r) {
    float x[32];
    decode_stored_row(x, w, r);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(x[i], kE2m1[static_cast<size_t>(i % 16)] * scales[r * 2 + i / 16] * scale) << r << " " << i;
  }
}

TEST(QuantizedPlanes, ModelOptsNvfp4IsPutTogether) {
  const TemporaryFolder folder;
  auto tensors = planes("x.weight");
  tensors.push_back(f32_source("x.weight_scale_2", {}, {0.25f}));
  write_safetensors(folder.file("m.safetensors"), tensors);
  const auto file = open_safetensors_file(folder.file("m.safetensors"));
  expect_planes(file->get("x.weight"), 0.25f);
}

TEST(QuantizedPlanes, CompressedTensorsDividesByItsGlobalScale) {
  const TemporaryFolder folder;
  auto tensors = planes("x.weight_packed");
  tensors.push_back(f32_source("x.weight_global_scale", {1}, {4.0f}));
  write_safetensors(folder.file("m.safetensors"), tensors);
  const auto file = open_safetensors_file(folder.file("m.safetensors"));
  EXPECT_TRUE(file->has("x.weight"));
  expect_planes(file->get("x.weight"), 0.25f);
}

TEST(QuantizedPlanes, Fp8IsScaledByBlocksOf128) {
  const TemporaryFolder folder;
  constexpr int64_t kRows = 130, kCols = 200;
  std::vector<uint8_t> codes(kRows * kCols);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 7 % 126 | (i % 3 == 0 ? 0x80 : 0));
  write_safetensors(folder.file("m.safetensors"), {bytes_source("x.weight", FormatId::fp8_e4m3, {kRows, kCols}, codes), f32_source("x.weight_scale_inv", {2, 2}, {0.5f, 3, 0.1f, 7})});
  const auto file = open_safetensors_file(folder.file("m.safetensors"));
  const StoredWeight w = file->get("x.weight");
  EXPECT_EQ(std::pair(w.rows, w.cols), std::pair(kRows, kCols));
  const float scales[2][2] = {{0.5f, 3}, {0.1f, 7}};
  std::vector<float> row(kCols);
  for (int64_t r = 0; r < kRows; ++r) {
    decode_stored_row(row.data(), w, r);
    for (int64_t i = 0; i < kCols; ++i) ASSERT_EQ(row[static_cast<size_t>(i)], e4m3_to_f32(codes[static_cast<size_t>(r * kCols + i)]) * scales[r / 128][i / 128]) << r << " " << i;
  }
}

TEST(QuantizedPlanes, Fp8IsScaledByRowOrAsAWhole) {
  const TemporaryFolder folder;
  const std::vector<uint8_t> codes = {0x38, 0x40, 0xb8, 0x48};                        // 1 2 -1 4
  write_safetensors(folder.file("m.safetensors"), {bytes_source("x.weight", FormatId::fp8_e4m3, {2, 2}, codes), f32_source("x.weight_scale", {2, 1}, {3, 5}),
                                                   bytes_source("y.weight", FormatId::fp8_e4m3, {2, 2}, codes), f32_source("y.weight_scale", {}, {0.5f})});
  const auto file = open_safetensors_file(folder.file("m.safetensors"));
  const float want[2][4] = {{3, 6, -5, 20}, {0.5f, 1, -0.5f, 2}};
  for (int i = 0; i < 2; ++i) {
    const StoredWeight w = file->get(i == 0 ? "x.weight" : "y.weight");
    float x[4];
    for (int64_t r = 0; r < 2; ++r) decode_stored_row(x + 2 * r, w, r);
    for (int k = 0; k < 4; ++k) EXPECT_EQ(x[k], want[i][k]);
  }
}

TEST(QuantizedPlanes, GptOssBlocksAreMxfp4) {
  const TemporaryFolder folder;
  std::vector<uint8_t> blocks(2 * 3 * 2 * 16), scales(2 * 3 * 2);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<uint8_t>(i * 37);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(120 + i);
  write_safetensors(folder.file("m.safetensors"), {bytes_source("experts.up_blocks", FormatId::u8, {2, 3, 2, 16}, blocks), bytes_source("experts.up_scales", FormatId::u8, {2, 3, 2}, scales)});
  const auto file = open_safetensors_file(folder.file("m.safetensors"));
  EXPECT_TRUE(file->has("experts.up"));
  const StoredWeight w = file->get("experts.up");
  EXPECT_EQ(w.format, FormatId::mxfp4);
  EXPECT_EQ(std::pair(w.rows, w.cols), std::pair(int64_t{6}, int64_t{64}));
  float x[64];
  for (int64_t r = 0; r < 6; ++r) {
    decode_stored_row(x, w, r);
    for (int64_t i = 0; i < 64; ++i) {
      const uint8_t byte = blocks[static_cast<size_t>(r * 32 + i / 2)];
      EXPECT_EQ(x[i], std::ldexp(kE2m1[i % 2 == 0 ? byte & 15 : byte >> 4], scales[static_cast<size_t>(r * 2 + i / 32)] - 127)) << r << " " << i;
    }
  }
}

TEST(QuantizedPlanes, OtherQuantizationsAreRefusedByName) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::vector<TensorSource>& tensors) {
    write_safetensors(folder.file("m.safetensors"), tensors);
    const auto file = open_safetensors_file(folder.file("m.safetensors"));
    return error_of([&] { file->get("x.weight"); });
  };
  EXPECT_TRUE(mentions(refusal(planes("x.weight")), {"x.weight", "weight_scale_2"}));
  EXPECT_TRUE(mentions(refusal({bytes_source("x.weight", FormatId::fp8_e4m3, {1, 4}, {1, 2, 3, 4}), f32_source("x.weight_scale_inv", {2, 1}, {1, 1})}), {"weight_scale_inv", "[2, 1]", "[1, 1]"}));
  EXPECT_TRUE(mentions(refusal({bytes_source("x.weight", FormatId::fp8_e4m3, {4, 2}, std::vector<uint8_t>(8)), f32_source("x.weight_scale", {3}, {1, 1, 1})}), {"weight_scale", "each row"}));
  EXPECT_TRUE(mentions(refusal({bytes_source("x.weight", FormatId::fp8_e5m2, {1, 4}, {1, 2, 3, 4}), f32_source("x.weight_scale_inv", {1, 1}, {1})}), {"x.weight", "fp8_e5m2"}));
  EXPECT_TRUE(mentions(refusal({bytes_source("x.weight_blocks", FormatId::u8, {2, 1, 16}, std::vector<uint8_t>(32))}), {"x.weight_blocks", "x.weight_scales"}));
  EXPECT_TRUE(mentions(refusal({f32_source("x.qweight", {1}, {1})}), {"x.weight", "GPTQ", "x.qweight"}));
  auto wrong = planes("x.weight");
  wrong[1].shape = {1, 4};
  EXPECT_TRUE(mentions(refusal(wrong), {"x.weight_scale", "[1, 4]", "[2, 2]"}));
}

}  // namespace
}  // namespace ridge
