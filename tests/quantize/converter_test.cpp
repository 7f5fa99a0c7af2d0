// A model through both containers: numbers, configuration and tokenizer survive the way to GGUF and back, and what fails leaves nothing behind.
#include "quantize/converter.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "files/tensor_source.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = std::string(RIDGE_SOURCE_DIR) + "/tests/data/golden/llama";

class Convert : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kGolden)) GTEST_SKIP() << kGolden << " is not there";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  size_t n_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }
  std::string folder_ = (fs::temp_directory_path() / ("ridge_convert_" + std::to_string(::getpid()))).string();
};

void expect_same_numbers(const WeightFile& a, const WeightFile& b) {
  for (const TensorInfo& info : a.tensors()) {
    const StoredWeight x = a.get(info.name), y = b.get(info.name);
    ASSERT_TRUE(x.rows == y.rows && x.cols == y.cols) << info.name;
    std::vector<float> p(static_cast<size_t>(x.cols)), q(p.size());
    for (int64_t r = 0; r < x.rows; ++r) {
      decode_stored_row(p.data(), x, r);
      decode_stored_row(q.data(), y, r);
      ASSERT_EQ(p, q) << info.name << " row " << r;
    }
  }
}

TEST_F(Convert, SafetensorsToGgufAndBackKeepsEveryNumber) {
  const Checkpoint original = open_checkpoint(kGolden, CacheFolders{});
  const ConvertReport report = convert_to_gguf(original, file("m.gguf"), std::nullopt);
  EXPECT_EQ(report.architecture, "llama");
  EXPECT_TRUE(report.left_out.empty() && report.differences.empty());
  const Checkpoint gguf = open_checkpoint(file("m.gguf"), CacheFolders{});
  expect_same_numbers(*original.weights, *gguf.weights);
  convert_to_folder(gguf, file("back"), std::nullopt);
  const Checkpoint back = open_checkpoint(file("back"), CacheFolders{});
  expect_same_numbers(*original.weights, *back.weights);
  for (const auto& [key, value] : original.config.items()) EXPECT_EQ(back.config.value(key, Json()), value) << key;
}

TEST_F(Convert, BlocksBecomeNumbersInAFolder) {
  const Checkpoint original = open_checkpoint(kGolden, CacheFolders{});
  convert_to_gguf(original, file("m.gguf"), QuantizeOptions{.format = FormatId::q8_0});
  const Checkpoint gguf = open_checkpoint(file("m.gguf"), CacheFolders{});
  EXPECT_EQ(gguf.weights->get("model.layers.0.mlp.up_proj.weight").format, FormatId::q8_0);
  convert_to_folder(gguf, file("back"), FormatId::f32);
  const Checkpoint back = open_checkpoint(file("back"), CacheFolders{});
  EXPECT_EQ(back.weights->get("model.layers.0.mlp.up_proj.weight").format, FormatId::f32);
  expect_same_numbers(*gguf.weights, *back.weights);
}

TEST_F(Convert, AVocabularyWithoutTokenizerJsonGoesAlong) {
  const std::string gguf = std::string(RIDGE_SOURCE_DIR) + "/tests/data/files/llama.gguf";
  const Checkpoint original = open_checkpoint(gguf, CacheFolders{});
  if (!original.tokenizer_json.empty() || !original.gguf->metadata().has("tokenizer.ggml.tokens")) GTEST_SKIP() << gguf << " has no vocabulary of its own";
  convert_to_folder(original, file("back"), std::nullopt);
  const Checkpoint back = open_checkpoint(file("back"), CacheFolders{});
  ASSERT_TRUE(back.gguf);
  EXPECT_EQ(back.gguf->metadata().strings("tokenizer.ggml.tokens"), original.gguf->metadata().strings("tokenizer.ggml.tokens"));
  EXPECT_EQ(back.eos_ids, original.eos_ids);
}

TEST_F(Convert, WhatFailsLeavesNothingBehind) {
  Checkpoint c = open_checkpoint(kGolden, CacheFolders{});
  c.config["model_type"] = "hal9000";
  EXPECT_THROW(convert_to_gguf(c, file("m.gguf"), std::nullopt), Error);
  c.config["model_type"] = "llama";
  c.config["num_attention_heads"] = 5;                 // does not divide the rows of q
  EXPECT_THROW(convert_to_gguf(c, file("m.gguf"), std::nullopt), Error);
  EXPECT_THROW(convert_to_folder(c, file("back"), FormatId::q8_0), Error);
  EXPECT_EQ(n_files(), 0u);
}

}  // namespace
}  // namespace ridge
