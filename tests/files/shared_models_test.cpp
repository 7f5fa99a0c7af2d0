// Every checkpoint of ../shared opens: golden models of all architectures, our own models, GGUF vocabularies. Skipped where that folder is absent.
#include <gtest/gtest.h>

#include "files/checkpoint.h"
#include "files/gguf_weights.h"
#include "files/gguf_writer.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> list;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_directory()) list.push_back(entry.path().string());
  std::sort(list.begin(), list.end());
  return list;
}

void expect_readable(const Checkpoint& c) {
  for (const TensorInfo& info : c.weights->tensors()) {
    const StoredWeight w = c.weights->get(info.name);
    std::vector<float> row(static_cast<size_t>(w.cols));
    if (w.rows > 0) decode_stored_row(row.data(), w, w.rows - 1);
  }
}

TEST(SharedModels, EveryGoldenCheckpointOpens) {
  const auto folders = folders_in(shared_folder("golden"));
  if (folders.empty()) GTEST_SKIP() << "../shared/golden is absent";
  EXPECT_EQ(folders.size(), 66u);
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    const Checkpoint c = open_checkpoint(folder, CacheFolders{});
    EXPECT_TRUE(c.config.contains("model_type"));
    EXPECT_TRUE(c.config["rope_parameters"].is_object());
    EXPECT_FALSE(c.eos_ids.empty());
    expect_readable(c);
    const auto golden = open_safetensors_file(folder + "/golden.safetensors");
    EXPECT_TRUE(golden->has("logits") && golden->has("greedy"));
  }
}

TEST(SharedModels, OurOwnModelsOpen) {
  const auto folders = folders_in(shared_folder("models"));
  if (folders.empty()) GTEST_SKIP() << "../shared/models is absent";
  for (const std::string& folder : folders) {
    if (!names_a_model(folder, CacheFolders{})) continue;             // a folder of references alone
    SCOPED_TRACE(folder);
    expect_readable(open_checkpoint(folder, CacheFolders{}));
  }
}

TEST(SharedModels, VocabulariesOpenWithoutWeights) {
  std::error_code ignored;
  const std::string folder = shared_folder("tokenizers/gguf_vocabs");
  if (!std::filesystem::exists(folder, ignored)) GTEST_SKIP() << "../shared/tokenizers is absent";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path().string());
    const Checkpoint c = open_checkpoint(entry.path().string(), CacheFolders{}, false);
    ASSERT_TRUE(c.gguf);
    EXPECT_GT(c.gguf->metadata().strings("tokenizer.ggml.tokens")->size(), 1000u);
    EXPECT_FALSE(c.eos_ids.empty());
    EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(entry.path().string(), CacheFolders{}); }), {"no tensors"}));
  }
}

// The golden models of every family in the table, to GGUF and back: configuration and numbers are the same, with our copy of the config and, key by key of
// what decides the arithmetic, without it.
TEST(SharedModels, GoldenModelsSurviveGguf) {
  if (folders_in(shared_folder("golden")).empty()) GTEST_SKIP() << "../shared/golden is absent";
  for (const char* name : {"llama", "llama3_rope", "llama_linear", "llama_dynamic", "llama_yarn", "llama_tied_gqa1", "phi3", "phi3_longrope", "mistral_swa", "qwen2", "qwen3", "gpt2", "starcoder2", "olmo2",
                           "olmo3", "smollm3", "granite", "gemma", "gemma2", "gemma3"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const Checkpoint a = open_checkpoint(shared_folder("golden/") + name, CacheFolders{});
    std::vector<TensorSource> tensors;
    for (const TensorInfo& info : a.weights->tensors()) tensors.push_back(converted(*a.weights, info, FormatId::bf16));
    write_gguf_model(folder.file("m.gguf"), a.config, {}, tensors);
    const Checkpoint b = open_checkpoint(folder.file("m.gguf"), CacheFolders{});
    for (const auto& [key, value] : a.config.items()) EXPECT_EQ(b.config.value(key, Json("absent")), value) << key;
    const bool is_gemma = a.config["model_type"].get<std::string>().starts_with("gemma");
    for (const TensorInfo& info : a.weights->tensors()) {
      const StoredWeight x = a.weights->get(info.name), y = b.weights->get(info.name);
      ASSERT_EQ(x.rows, y.rows);
      ASSERT_EQ(x.cols, y.cols);
      std::vector<float> p(static_cast<size_t>(x.cols)), q(p.size());
      for (int64_t r = 0; r < x.rows; ++r) {
        decode_stored_row(p.data(), x, r);
        decode_stored_row(q.data(), y, r);
        for (size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(p[i], q[i], is_gemma ? 1e-6f : 0.0f) << info.name;          // (w + 1) - 1 rounds once
      }
    }
  }
}

}  // namespace
}  // namespace ridge
