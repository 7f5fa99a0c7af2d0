// The tensors of a container by name: what safetensors and GGUF share once their headers are checked.
// It knows where each tensor's bytes lie, hands out two-dimensional views, and owns the few copies that a view cannot be (rows in another order, bytes that lie
// at an address their type cannot be read from).
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "files/weight_file.h"

namespace ridge {

// Bytes of a tensor of this shape, or nothing when a dimension is negative, the product overflows or a row is not whole blocks.
std::optional<uint64_t> tensor_bytes(int block_elems, int block_bytes, const std::vector<int64_t>& shape);

// Levenshtein's, for "did you mean".
size_t edit_distance(std::string_view a, std::string_view b);

class TensorTable {
 public:
  void add(TensorInfo info, const std::byte* data);       // throws Error when the name is taken
  const std::vector<TensorInfo>& tensors() const { return infos_; }
  const TensorInfo* find(std::string_view name) const;
  // [product of the outer dimensions, innermost]; a vector is [1, n], a scalar [1, 1], what is empty [0, 0].
  StoredWeight get(const TensorInfo& info) const;
  // A tensor that no file has as such, made by `fill` (given rows * row_bytes bytes) at the first call and kept under its name.
  StoredWeight made(const std::string& name, FormatId format, int64_t rows, int64_t cols, const std::function<void(std::byte*)>& fill) const;
  // The single number in a tensor of one element.
  float scalar(const TensorInfo& info) const;
  [[noreturn]] void fail_missing(std::string_view name, std::string_view file) const;

 private:
  std::byte* copy_of(const std::string& name, uint64_t n_bytes, const std::function<void(std::byte*)>& fill) const;

  std::vector<TensorInfo> infos_;
  std::vector<const std::byte*> data_;
  std::unordered_map<std::string, size_t> index_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<uint64_t>> copies_;      // uint64_t: aligned for every format
};

}  // namespace ridge
