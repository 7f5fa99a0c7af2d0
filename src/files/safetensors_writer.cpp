#include "files/safetensors_writer.h"

#include "base/error.h"
#include "base/files.h"
#include "files/safetensors.h"

namespace ridge {

void write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors, const Json& metadata, const std::function<void(uint64_t, uint64_t)>& progress) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t total = 0;
  for (const TensorSource& t : tensors) {
    const auto dtype = safetensors_dtype(t.format);
    if (!dtype) fail("{}: tensor '{}' is in {}, which safetensors has no type for; write a .gguf file instead", path, t.name, format(t.format).name);
    if (t.scale != 1.0f) fail("{}: tensor '{}' has a scale of {}, which this container keeps no place for", path, t.name, t.scale);
    const uint64_t end = total + t.bytes();
    const auto [it, is_new] = header.emplace(t.name, nlohmann::json{{"dtype", *dtype}, {"shape", t.shape}, {"data_offsets", {total, end}}});
    if (!is_new) fail("{}: tensor '{}' would be written twice", path, t.name);
    total = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');             // the reference implementation aligns the data to 8 bytes so
  const uint64_t n = text.size();
  OutputFile file(path);
  file.write(&n, 8);
  file.write(text);
  uint64_t done = 0;
  std::vector<std::byte> row;
  for (const TensorSource& t : tensors) {
    row.resize(static_cast<size_t>(row_bytes(t.format, t.cols())));
    for (int64_t r = 0; r < t.rows(); ++r) {
      t.encode_row(row.data(), r);
      file.write(row.data(), row.size());
      done += row.size();
      if (progress) progress(done, total);
    }
  }
  file.commit();
}

}  // namespace ridge
