#include "plan/promised_weights.h"

namespace ridge {

StoredWeight PromisedWeights::shaped(std::string_view name, int64_t rows, int64_t cols) const {
  const bool fits = rows > 1 && cols % format(matrices_).block_elems == 0;
  const FormatId stored = fits ? matrices_ : FormatId::bf16;
  const int64_t n_bytes = row_bytes(stored, cols);
  if (n_bytes > longest_ || zeros_.empty()) {
    longest_ = n_bytes + 64;
    zeros_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(longest_)));
  }
  return {.name = std::string(name), .format = stored, .rows = rows, .cols = cols, .codes = {zeros_.back().get(), stored, rows, cols, 0}};
}

FormatId promised_format(const Json& config) {
  const auto text = [](const Json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : std::string();
  };
  const std::string method = config.contains("quantization_config") ? text(config["quantization_config"], "quant_method") : "";
  if (method == "fp8") return FormatId::fp8_e4m3;
  if (method == "mxfp4") return FormatId::mxfp4;
  const std::string dtype = text(config, "dtype");
  return dtype == "float32" ? FormatId::f32 : dtype == "float16" ? FormatId::f16 : FormatId::bf16;
}

void promise_weights(Checkpoint& checkpoint, FormatId format) {
  checkpoint.weights = std::make_unique<PromisedWeights>(format == FormatId::unknown ? promised_format(checkpoint.config) : format);
}

}  // namespace ridge
