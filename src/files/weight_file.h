// A checkpoint as a set of named tensors and a configuration, whatever the container. Names are Hugging Face's: GGUF names are translated at this door
// (gguf_names) and nowhere else. Everything read here is untrusted and checked before it is used.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/tensor.h"

namespace ridge {

struct TensorInfo {
  std::string name;                         // Hugging Face's
  std::string stored_name;                  // as the container spells it
  FormatId format;
  std::vector<int64_t> shape;               // outermost first, as safetensors has it
  uint64_t bytes;
  std::string file;
};

class WeightFile {
 public:
  virtual ~WeightFile() = default;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual bool has(std::string_view name) const = 0;
  // Two-dimensional weight by Hugging Face's name; a vector is [1, n], outer dimensions are flattened into rows. rows are output features in every
  // container: GPT-2's Conv1D matrices in safetensors come with `transposed`. Throws Error naming the tensor and the nearest names when it is missing.
  virtual StoredWeight get(std::string_view name) const = 0;
  // The same for who knows which shape it must have: what is in a file has its own, and only a promise of weights takes the one asked for.
  virtual StoredWeight shaped(std::string_view name, int64_t /*rows*/, int64_t /*cols*/) const { return get(name); }
  virtual std::string container() const = 0;            // "safetensors, 2 shards", "GGUF v3"
};

// One file in safetensors format (also golden.safetensors, adapters, ...): header checked in full (sizes, overlaps, dtypes) before any tensor is handed out.
std::unique_ptr<WeightFile> open_safetensors_file(const std::string& path);

}  // namespace ridge
