// Whatever a GGUF file holds: it opens and its metadata, configuration and tensors can all be read, or it is an Error. Never anything else.
#include <gtest/gtest.h>

#include "files/checkpoint.h"
#include "files/gguf_writer.h"
#include "fuzz.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

size_t header_bytes_of(const std::string& path) {
  const GgufFile file(path);
  return file.tensors().empty() ? 0 : std::filesystem::file_size(path) - 34000;
}

struct Counts {
  size_t n_opened = 0, n_refused = 0;
};

void read_all(const TemporaryFolder& folder, const std::string& bytes, Counts& counts) {
  const std::string path = folder.write("m.gguf", bytes);
  try {
    const Checkpoint c = open_checkpoint(path, CacheFolders{});
    ++counts.n_opened;
    c.metadata.dump();
    for (const TensorInfo& info : c.weights->tensors()) {
      ASSERT_LE(info.bytes, bytes.size());
      try {
        const StoredWeight w = c.weights->get(info.name);
        std::vector<float> row(static_cast<size_t>(w.cols));
        if (w.rows > 0) decode_stored_row(row.data(), w, w.rows - 1);
      } catch (const Error&) {
        // A type we cannot read, rows that are no whole heads.
      }
    }
  } catch (const Error& e) {
    ++counts.n_refused;
    ASSERT_NE(std::string(e.what()).find("m.gguf"), std::string::npos) << e.what();
  }
}

TEST(GgufFuzz, AnyBytesAreReadOrRefused) {
  const TemporaryFolder folder;
  Counts counts;
  const std::string valid = read_file(data_file("llama.gguf"));
  fuzz(valid, header_bytes_of(data_file("llama.gguf")), 3, std::chrono::milliseconds(2800), [&](const std::string& bytes) { read_all(folder, bytes, counts); });
  EXPECT_GT(counts.n_refused, 20u);
  EXPECT_GT(counts.n_opened, 0u);
}

// Stacks, latents, delta nets and state spaces are taken apart and put together by numbers of the metadata.
TEST(GgufFuzz, SoAreThoseOfEveryKindOfArchitecture) {
  const TemporaryFolder folder;
  Counts counts;
  for (const char* name : {"deepseek_v3", "gpt_oss", "qwen3_next", "qwen3_5_moe", "mamba2", "granitemoehybrid", "gemma4"}) {
    const std::string golden = shared_folder(std::string("golden/") + name);
    if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " is not there";
    const Checkpoint c = open_checkpoint(golden, CacheFolders{});
    std::vector<TensorSource> sources;
    for (const TensorInfo& info : model_tensors(*c.weights)) sources.push_back(converted(*c.weights, info, c.weights->get(info.name).format));
    write_gguf_model(folder.file("v.gguf"), c.config, {}, sources);
    std::string valid = read_file(folder.file("v.gguf"));
    valid.replace(valid.find("ridge.config"), 12, "ridge.nothng");              // what llama.cpp's own files do not have
    const uint64_t data_bytes = std::filesystem::file_size(golden + "/model.safetensors");
    fuzz(valid, valid.size() > data_bytes ? valid.size() - data_bytes : valid.size(), 5, std::chrono::milliseconds(400), [&](const std::string& bytes) { read_all(folder, bytes, counts); });
  }
  EXPECT_GT(counts.n_refused, 20u);
  EXPECT_GT(counts.n_opened, 0u);
}

}  // namespace
}  // namespace ridge
