// Whatever a GGUF file holds: it opens and its metadata, configuration and tensors can all be read, or it is an Error. Never anything else.
#include <gtest/gtest.h>

#include "files/checkpoint.h"
#include "fuzz.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

size_t header_bytes_of(const std::string& path) {
  const GgufFile file(path);
  return file.tensors().empty() ? 0 : std::filesystem::file_size(path) - 34000;
}

TEST(GgufFuzz, AnyBytesAreReadOrRefused) {
  const TemporaryFolder folder;
  size_t n_opened = 0, n_refused = 0;
  const std::string valid = read_file(data_file("llama.gguf"));
  fuzz(valid, header_bytes_of(data_file("llama.gguf")), 3, std::chrono::milliseconds(2800), [&](const std::string& bytes) {
    const std::string path = folder.write("m.gguf", bytes);
    try {
      const Checkpoint c = open_checkpoint(path, CacheFolders{});
      ++n_opened;
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
      ++n_refused;
      ASSERT_NE(std::string(e.what()).find("m.gguf"), std::string::npos) << e.what();
    }
  });
  EXPECT_GT(n_refused, 20u);
  EXPECT_GT(n_opened, 0u);
}

}  // namespace
}  // namespace ridge
