// A model that exists in memory alone: a known shape filled with Gaussian numbers of standard deviation 1/sqrt(cols), the same for the same name every time.
// One pool of encoded numbers is made per format; each row of a tensor is copied from a place in it that the tensor's name and the row decide, so that an
// 8B model takes seconds. Tensors are made when they are first asked for.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/shapes.h"
#include "files/checkpoint.h"
#include "model/model.h"

namespace ridge {

class RandomWeights : public WeightFile {
 public:
  RandomWeights(const BenchShape& shape, FormatId format);
  ~RandomWeights() override;

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  bool has(std::string_view name) const override;
  StoredWeight get(std::string_view name) const override;
  std::string container() const override { return "random numbers in memory"; }
  // Gives back the memory of all matrices but the embedding table, which backends read in place; for backends that repacked the others.
  void release_packed() const;

 private:
  struct Memory;
  const Memory& made(size_t index) const;
  const std::vector<std::byte>& pool(FormatId format, int64_t cols) const;
  std::vector<TensorInfo> infos_;
  std::map<std::string, size_t, std::less<>> by_name_;
  mutable std::vector<std::unique_ptr<Memory>> memory_;            // by tensor
  mutable std::map<std::pair<FormatId, int64_t>, std::vector<std::byte>> pools_;
};

Checkpoint random_checkpoint(const BenchShape& shape, FormatId format);

}  // namespace ridge
