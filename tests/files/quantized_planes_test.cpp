// NVFP4 as checkpoints publish it, in planes; and other quantizations, which are refused instead of read as numbers.
#include <gtest/gtest.h>

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

TEST(QuantizedPlanes, OtherQuantizationsAreRefusedByName) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::vector<TensorSource>& tensors) {
    write_safetensors(folder.file("m.safetensors"), tensors);
    const auto file = open_safetensors_file(folder.file("m.safetensors"));
    return error_of([&] { file->get("x.weight"); });
  };
  EXPECT_TRUE(mentions(refusal(planes("x.weight")), {"x.weight", "weight_scale_2"}));
  EXPECT_TRUE(mentions(refusal({bytes_source("x.weight", FormatId::fp8_e4m3, {1, 4}, {1, 2, 3, 4}), f32_source("x.weight_scale_inv", {1, 1}, {1})}), {"x.weight", "fp8_e4m3", "weight_scale_inv"}));
  EXPECT_TRUE(mentions(refusal({f32_source("x.qweight", {1}, {1})}), {"x.weight", "GPTQ", "x.qweight"}));
  auto wrong = planes("x.weight");
  wrong[1].shape = {1, 4};
  EXPECT_TRUE(mentions(refusal(wrong), {"x.weight_scale", "[1, 4]", "[2, 2]"}));
}

}  // namespace
}  // namespace ridge
