// Whatever a safetensors file holds: it opens and every tensor it lists can be read to its last byte, or it is an Error. Never anything else.
#include <gtest/gtest.h>

#include "files/safetensors.h"
#include "fuzz.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

TEST(SafetensorsFuzz, AnyBytesAreReadOrRefused) {
  const TemporaryFolder folder;
  size_t n_opened = 0, n_refused = 0;
  const std::string valid = read_file(data_file("every_dtype.safetensors"));
  fuzz(valid, valid.size() - 100, 1, std::chrono::milliseconds(2500), [&](const std::string& bytes) {
    const std::string path = folder.write("m.safetensors", bytes);
    try {
      const auto file = open_safetensors_file(path);
      ++n_opened;
      for (const TensorInfo& info : file->tensors()) {
        const StoredWeight w = file->get(info.name);
        ASSERT_LE(info.bytes, bytes.size());
        std::vector<float> row(static_cast<size_t>(w.cols));
        if (w.rows > 0) decode_stored_row(row.data(), w, w.rows - 1);
      }
    } catch (const Error& e) {
      ++n_refused;
      ASSERT_NE(std::string(e.what()).find("m.safetensors"), std::string::npos) << e.what();
    }
  });
  EXPECT_GT(n_refused, 20u);
  EXPECT_GT(n_opened, 0u);
}

TEST(SafetensorsFuzz, AnyIndexIsReadOrRefused) {
  const TemporaryFolder folder;
  folder.write("one.safetensors", read_file(data_file("every_dtype.safetensors")));
  const std::string valid = R"({"metadata": {"total_size": 100}, "weight_map": {"F32": "one.safetensors", "BF16": "one.safetensors"}})";
  size_t n_refused = 0;
  fuzz(valid, valid.size(), 2, std::chrono::milliseconds(400), [&](const std::string& bytes) {
    folder.write("model.safetensors.index.json", bytes);
    try {
      open_safetensors_folder(folder.path(), Json::object());
    } catch (const Error&) {
      ++n_refused;
    }
  });
  EXPECT_GT(n_refused, 5u);
}

}  // namespace
}  // namespace ridge
