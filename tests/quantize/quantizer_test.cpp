// Which tensor gets which format, and what the report says about a model that was rounded.
#include "quantize/quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "files/tensor_source.h"
#include "quantize/report.h"

namespace ridge {
namespace {

const std::vector<int64_t> kMatrix = {128, 64}, kVector = {64};

TEST(QuantizePlan, MatricesGetTheChosenFormatAndVectorsKeepTheirs) {
  const QuantizeOptions options{.format = FormatId::nvfp4};
  EXPECT_EQ(planned_format(options, "model.layers.0.mlp.up_proj.weight", kMatrix, FormatId::bf16), FormatId::nvfp4);
  EXPECT_EQ(planned_format(options, "model.layers.0.input_layernorm.weight", kVector, FormatId::bf16), FormatId::bf16);
  EXPECT_EQ(planned_format(options, "model.layers.0.self_attn.q_proj.bias", kVector, FormatId::f32), FormatId::f32);
}

TEST(QuantizePlan, TablesGetEightBitsBesideFourAndWhatTheyAreToldOtherwise) {
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "transformer.wte.weight"}) {
    EXPECT_EQ(planned_format({.format = FormatId::nvfp4}, name, kMatrix, FormatId::bf16), FormatId::q8_0) << name;
    EXPECT_EQ(planned_format({.format = FormatId::q8_0}, name, kMatrix, FormatId::bf16), FormatId::q8_0) << name;
    EXPECT_EQ(planned_format({.format = FormatId::q4_0, .embedding = FormatId::bf16}, name, kMatrix, FormatId::f32), FormatId::bf16) << name;
  }
}

TEST(QuantizePlan, NamesToKeepAndIntegersStayAsTheyAre) {
  const QuantizeOptions options{.format = FormatId::q4_0, .keep = "layers\\.0\\..*down"};
  EXPECT_EQ(planned_format(options, "model.layers.0.mlp.down_proj.weight", kMatrix, FormatId::bf16), FormatId::bf16);
  EXPECT_EQ(planned_format(options, "model.layers.1.mlp.down_proj.weight", kMatrix, FormatId::bf16), FormatId::q4_0);
  EXPECT_EQ(planned_format(options, "d2t", kMatrix, FormatId::i64), FormatId::i64);
  EXPECT_THROW(planned_format({.format = FormatId::q4_0, .keep = "("}, "x", kMatrix, FormatId::bf16), Error);
}

TEST(QuantizePlan, RowsThatBlocksDoNotDivideFallBack) {
  EXPECT_EQ(planned_format({.format = FormatId::nvfp4}, "a.mlp.weight", {4, 96}, FormatId::bf16), FormatId::q8_0);
  EXPECT_EQ(planned_format({.format = FormatId::nvfp4}, "a.mlp.weight", {4, 20}, FormatId::bf16), FormatId::bf16);
}

TEST(QuantizeReport, AddsUpByComponent) {
  QuantizeReport report;
  report.of("model.layers.0.mlp.up_proj.weight").n_params += 10;
  report.of("model.layers.1.mlp.up_proj.weight").n_params += 5;
  report.of("mtp.layers.0.mlp.up_proj.weight").n_params += 3;
  ASSERT_EQ(report.components().size(), 2u);
  EXPECT_EQ(report.components()[0].component, "mlp");
  EXPECT_EQ(report.components()[0].n_params, 15);
  EXPECT_EQ(report.total().n_params, 18);
}

// Relative error of Gaussian numbers: known for each format to a few percent, so a broken encoder or a forgotten scale shows.
TEST(Quantize, GaussianWeightsLoseWhatTheFormatMustLose) {
  const std::string golden = std::string(RIDGE_SOURCE_DIR) + "/tests/data/golden/llama";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " is not there";
  const Checkpoint checkpoint = open_checkpoint(golden);
  const std::string path = (std::filesystem::temp_directory_path() / "ridge_quantizer_test.gguf").string();
  struct Expected { FormatId id; double least, most; };
  for (const auto& [id, least, most] : {Expected{FormatId::q8_0, 0.001, 0.01}, {FormatId::q4_0, 0.03, 0.12}, {FormatId::nvfp4, 0.03, 0.12}, {FormatId::bf16, 0.0, 0.004}}) {
    const QuantizeReport report = quantize_to_gguf(checkpoint, path, {.format = id});
    for (const ComponentError& c : report.components()) {
      if (c.component != "mlp" && c.component != "attention") continue;
      EXPECT_GE(c.relative_error(), least) << format(id).name << " " << c.component;
      EXPECT_LE(c.relative_error(), most) << format(id).name << " " << c.component;
    }
    const Checkpoint back = open_checkpoint(path);
    for (const TensorInfo& info : checkpoint.weights->tensors()) {
      const StoredWeight before = checkpoint.weights->get(info.name), after = back.weights->get(info.name);
      ASSERT_EQ(before.rows, after.rows) << info.name;
      ASSERT_EQ(before.cols, after.cols) << info.name;
      std::vector<float> x(size_t(before.cols)), y(size_t(before.cols));
      double error = 0, sum = 0;
      for (int64_t r = 0; r < before.rows; ++r) {
        decode_stored_row(x.data(), before, r);
        decode_stored_row(y.data(), after, r);
        for (size_t i = 0; i < x.size(); ++i) error += std::pow(double(x[i]) - y[i], 2), sum += std::pow(double(x[i]), 2);
      }
      EXPECT_LE(std::sqrt(error / sum), most) << info.name << " in " << format(id).name;
    }
  }
  std::filesystem::remove(path);
}

TEST(Quantize, AFormatThatNothingWritesIsRefused) {
  const std::string golden = std::string(RIDGE_SOURCE_DIR) + "/tests/data/golden/llama";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " is not there";
  const std::string path = (std::filesystem::temp_directory_path() / "ridge_quantizer_refused.gguf").string();
  std::filesystem::remove(path);
  EXPECT_THROW(quantize_to_gguf(open_checkpoint(golden), path, {.format = FormatId::unknown}), Error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace ridge
