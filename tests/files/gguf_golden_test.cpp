// Every golden checkpoint whose architecture llama.cpp has: as GGUF and read again, all its tensors have their names and numbers; the metadata alone says what the
// configuration said.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "files/checkpoint.h"
#include "files/gguf_writer.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

std::vector<std::string> golden_cases() {
  std::vector<std::string> cases;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(shared_folder("golden"), ignored)) cases.push_back(entry.path().filename().string());
  std::sort(cases.begin(), cases.end());
  return cases;
}

std::vector<TensorSource> sources_of(const Checkpoint& c) {
  std::vector<TensorSource> sources;
  for (const TensorInfo& info : model_tensors(*c.weights)) sources.push_back(converted(*c.weights, info, c.weights->get(info.name).format));
  return sources;
}

std::vector<float> numbers_of(const WeightFile& file, const std::string& name) {
  const StoredWeight w = file.get(name);
  std::vector<float> x(static_cast<size_t>(w.rows * w.cols));
  for (int64_t r = 0; r < w.rows; ++r) decode_stored_row(x.data() + r * w.cols, w, r);
  return x;
}

// Norms with 1 added and -exp(A_log) lose the last bits on the way.
void expect_near(const std::vector<float>& x, const std::vector<float>& y, const std::string& name) {
  ASSERT_EQ(x.size(), y.size()) << name;
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-6f * (1 + std::fabs(x[i]))) << name << " " << i;
}

TEST(GgufGolden, TensorsComeBackUnderHuggingFacesNames) {
  const auto cases = golden_cases();
  if (cases.empty()) GTEST_SKIP() << shared_folder("golden") << " is not there";
  const TemporaryFolder folder;
  int n = 0;
  for (const std::string& name : cases) {
    const Checkpoint c = open_checkpoint(shared_folder("golden/" + name), CacheFolders{});
    if (!gguf_architecture_of(c.config)) continue;
    SCOPED_TRACE(name);
    ++n;
    std::vector<std::string> left_out;
    write_gguf_model(folder.file("m.gguf"), c.config, {}, sources_of(c), {}, &left_out);
    EXPECT_TRUE(left_out.empty()) << left_out[0];
    const Checkpoint back = open_checkpoint(folder.file("m.gguf"), CacheFolders{});
    for (const TensorInfo& info : c.weights->tensors()) {
      if (!back.weights->has(info.name)) {
        // Stacks of experts come back one by one.
        EXPECT_NE(info.name.find(".experts."), std::string::npos) << info.name;
        continue;
      }
      expect_near(numbers_of(*c.weights, info.name), numbers_of(*back.weights, info.name), info.name);
    }
  }
  EXPECT_GT(n, 50);
}

TEST(GgufGolden, StackedExpertsComeBackOneByOne) {
  const std::string golden = shared_folder("golden/gpt_oss");
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " is not there";
  const TemporaryFolder folder;
  const Checkpoint c = open_checkpoint(golden, CacheFolders{});
  write_gguf_model(folder.file("m.gguf"), c.config, {}, sources_of(c));
  const Checkpoint back = open_checkpoint(folder.file("m.gguf"), CacheFolders{});
  const std::string stack = "model.layers.1.mlp.experts.";
  const int64_t n = c.config["num_local_experts"].get<int64_t>(), f = c.config["intermediate_size"].get<int64_t>(), d = c.config["hidden_size"].get<int64_t>();
  const auto gate_up = numbers_of(*c.weights, stack + "gate_up_proj"), bias = numbers_of(*c.weights, stack + "gate_up_proj_bias"), down = numbers_of(*c.weights, stack + "down_proj");
  for (int64_t e = 0; e < n; ++e) {
    const std::string p = stack + std::to_string(e) + ".";
    const auto gate = numbers_of(*back.weights, p + "gate_proj.weight"), up = numbers_of(*back.weights, p + "up_proj.weight"), up_bias = numbers_of(*back.weights, p + "up_proj.bias");
    const auto out = numbers_of(*back.weights, p + "down_proj.weight");
    for (int64_t i = 0; i < f; ++i) {
      ASSERT_EQ(up_bias[static_cast<size_t>(i)], bias[static_cast<size_t>(e * 2 * f + 2 * i + 1)]);
      for (int64_t k = 0; k < d; ++k) {
        ASSERT_EQ(gate[static_cast<size_t>(i * d + k)], gate_up[static_cast<size_t>((e * d + k) * 2 * f + 2 * i)]);
        ASSERT_EQ(up[static_cast<size_t>(i * d + k)], gate_up[static_cast<size_t>((e * d + k) * 2 * f + 2 * i + 1)]);
        ASSERT_EQ(out[static_cast<size_t>(k * f + i)], down[static_cast<size_t>((e * f + i) * d + k)]);
      }
    }
  }
}

// Stacks that lie transposed, fused or one by one, rounded to blocks on the way: the file says nearly what the checkpoint said, and has its shapes.
TEST(GgufGolden, RoundedStacksAreNearTheOriginal) {
  const TemporaryFolder folder;
  for (const char* name : {"gpt_oss", "granitemoe", "qwen3_moe", "deepseek_v3"}) {
    const std::string golden = shared_folder(std::string("golden/") + name);
    if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " is not there";
    const Checkpoint c = open_checkpoint(golden, CacheFolders{});
    write_gguf_model(folder.file("plain.gguf"), c.config, {}, sources_of(c));
    const Checkpoint plain = open_checkpoint(folder.file("plain.gguf"), CacheFolders{});
    for (const auto& [to, tolerance] : {std::pair{FormatId::q8_0, 0.01}, {FormatId::nvfp4, 0.15}}) {
      std::vector<TensorSource> sources;
      for (const TensorInfo& info : model_tensors(*c.weights)) sources.push_back(converted(*c.weights, info, to));
      write_gguf_model(folder.file("rounded.gguf"), c.config, {}, sources);
      const Checkpoint rounded = open_checkpoint(folder.file("rounded.gguf"), CacheFolders{});
      for (const TensorInfo& info : plain.weights->tensors()) {
        const auto x = numbers_of(*plain.weights, info.name), y = numbers_of(*rounded.weights, info.name);
        ASSERT_EQ(x.size(), y.size()) << name << " " << info.name;
        double error = 0, sum = 0;
        for (size_t i = 0; i < x.size(); ++i) error += std::pow(x[i] - y[i], 2), sum += std::pow(x[i], 2);
        EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(sum)) << name << " " << info.name;
      }
    }
  }
}

TEST(GgufGolden, MetadataAloneSaysWhatTheConfigurationSaid) {
  const auto cases = golden_cases();
  if (cases.empty()) GTEST_SKIP() << shared_folder("golden") << " is not there";
  const TemporaryFolder folder;
  // Things that llama.cpp knows by heart, of which golden cases were made to differ.
  const std::set<std::string> known = {"cohere2", "gemma", "gemma2", "falcon_h1", "llama4", "mistral_swa", "smollm3", "llama_dynamic", "llama_dynamic_cross"};
  for (const std::string& name : cases) {
    const Checkpoint c = open_checkpoint(shared_folder("golden/" + name), CacheFolders{});
    const GgufArchitecture* a = gguf_architecture_of(c.config);
    if (!a) continue;
    SCOPED_TRACE(name);
    write_gguf_model(folder.file("m.gguf"), c.config, {}, sources_of(c));
    const GgufFile file(folder.file("m.gguf"));
    EXPECT_EQ(config_from_gguf(file, gguf_architecture_of(file), rope_factors_from_config(c.config), 0, true)["model_type"], a->model_type);
    const auto differences = differences_for_llama_cpp(c.config, *a, file);
    if (known.contains(name)) EXPECT_FALSE(differences.empty());
    else EXPECT_TRUE(differences.empty()) << differences[0];
  }
}

}  // namespace
}  // namespace ridge
