#include "files/gguf_weights.h"

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "files/tensor_table.h"
#include "files/hf_config.h"

namespace ridge {
namespace {

class GgufWeights final : public WeightFile {
 public:
  GgufWeights(std::vector<std::shared_ptr<const GgufFile>> files, const GgufArchitecture& architecture) : files_(std::move(files)), architecture_(architecture) {
    for (const auto& file : files_)
      for (const GgufTensor& t : file->tensors())
        table_.add({.name = gguf_to_hf_name(architecture, t.name), .stored_name = t.name, .format = t.format, .shape = t.shape, .bytes = t.bytes, .file = file->path()}, t.data);
  }

  void set_heads(int64_t n_heads, int64_t n_kv_heads) { n_heads_ = n_heads, n_kv_heads_ = n_kv_heads; }
  const TensorTable& table() const { return table_; }

  const std::vector<TensorInfo>& tensors() const override { return table_.tensors(); }
  bool has(std::string_view name) const override { return table_.find(name) != nullptr; }
  std::string container() const override {
    return files_.size() == 1 ? fmt::format("GGUF v{}", files_[0]->version()) : fmt::format("GGUF v{}, {} files", files_[0]->version(), files_.size());
  }

  StoredWeight get(std::string_view name) const override {
    const TensorInfo* info = table_.find(name);
    if (!info) table_.fail_missing(name, files_[0]->path());
    StoredWeight w;
    if (has_interleaved_heads(architecture_, name)) w = get_deinterleaved(*info);
    else if (has_shifted_norm(architecture_, name)) w = table_.get_shifted(*info, -1.0f);
    else w = table_.get(*info);
    if (name.ends_with(".weight"))
      if (const TensorInfo* scale = table_.find(std::string(name.substr(0, name.size() - 7)) + ".scale")) w.scale = table_.scalar(*scale);
    return w;
  }

 private:
  StoredWeight get_deinterleaved(const TensorInfo& info) const {
    const int64_t n_heads = info.name.find(".k_proj.") != std::string::npos ? n_kv_heads_ : n_heads_;
    const int64_t rows = info.shape.empty() ? 0 : info.shape[0];
    if (n_heads <= 0 || rows % (2 * n_heads) != 0)
      fail("{}: tensor '{}' has {} rows, which do not divide into {} heads", info.file, info.stored_name, rows, n_heads);
    const int64_t d = rows / n_heads;
    return table_.get_with_rows_from(info, [d](int64_t r) { return interleaved_row(r, d); });
  }

  std::vector<std::shared_ptr<const GgufFile>> files_;
  const GgufArchitecture& architecture_;
  TensorTable table_;
  int64_t n_heads_ = 0, n_kv_heads_ = 0;
};

std::vector<float> floats_of(const TensorTable& table, std::string_view name) {
  const TensorInfo* info = table.find(name);
  if (!info) return {};
  const StoredWeight w = table.get(*info);
  if (w.rows * w.cols > 1 << 20) fail("{}: tensor '{}' has {} numbers", info->file, name, w.rows * w.cols);
  std::vector<float> values(static_cast<size_t>(w.rows * w.cols));
  for (int64_t r = 0; r < w.rows; ++r) decode_stored_row(values.data() + r * w.cols, w, r);
  return values;
}

}  // namespace

std::vector<std::shared_ptr<const GgufFile>> open_gguf_splits(const std::string& path) {
  std::vector<std::shared_ptr<const GgufFile>> files = {std::make_shared<const GgufFile>(path)};
  const int64_t n = files[0]->metadata().integer("split.count").value_or(1);
  if (n <= 1) return files;
  const std::string tail = fmt::format("-of-{:05}.gguf", n);
  if (n > 10000 || path.size() < tail.size() + 6 || !path.ends_with(tail))
    fail("{}: metadata 'split.count' says the model has {} files, but this one is not named '...-00001{}'; give all of them their original names", path, n, tail);
  const std::string head = path.substr(0, path.size() - tail.size() - 5);
  files.clear();
  for (int64_t i = 1; i <= n; ++i) {
    const std::string part = fmt::format("{}{:05}{}", head, i, tail);
    std::error_code ignored;
    if (!std::filesystem::exists(part, ignored)) fail("{}: part {} of {} of this model is missing ({}); download it again", path, i, n, part);
    files.push_back(std::make_shared<const GgufFile>(part));
  }
  return files;
}

GgufModel open_gguf_model(const std::vector<std::shared_ptr<const GgufFile>>& files) {
  const GgufFile& first = *files[0];
  const auto name = first.metadata().string("general.architecture");
  if (!name) fail("{}: metadata 'general.architecture' is missing", first.path());
  const GgufArchitecture* a = find_gguf_architecture(*name);
  if (!a) fail("{}: general.architecture is '{}', which is not supported; known are llama, qwen2, qwen3, phi3, gpt2, starcoder2, olmo2, smollm3, granite, gemma, gemma2, gemma3", first.path(), *name);
  auto weights = std::make_unique<GgufWeights>(files, *a);
  const TensorTable& table = weights->table();
  const GgufRopeFactors rope = {.freqs = floats_of(table, "rope_freqs.weight"), .long_factor = floats_of(table, "rope_factors_long.weight"), .short_factor = floats_of(table, "rope_factors_short.weight")};
  const TensorInfo* embedding = table.find(gguf_to_hf_name(*a, "token_embd.weight"));
  const int64_t n_rows = embedding && embedding->shape.size() == 2 ? embedding->shape[0] : 0;
  GgufModel model{.config = config_from_gguf(first, *a, rope, n_rows, table.find(gguf_to_hf_name(*a, "output.weight")) != nullptr)};
  weights->set_heads(model.config["num_attention_heads"].get<int64_t>(), model.config["num_key_value_heads"].get<int64_t>());
  // Files we wrote carry the original config.json, for what GGUF has no key for (dynamic rope, which layers have no rope).
  if (const auto original = first.metadata().string("ridge.config")) {
    Json config = normalize_config(parse_json(*original, first.path() + ": metadata 'ridge.config'"), first.path());
    for (const auto& [key, value] : model.config.items())
      if (!config.contains(key)) config[key] = value;
    if (gguf_architecture_of(config) && gguf_architecture_of(config)->gguf == a->gguf) model.config = std::move(config);
  }
  model.weights = std::move(weights);
  return model;
}

}  // namespace ridge
