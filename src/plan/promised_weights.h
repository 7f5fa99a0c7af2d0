// Weights that nobody has: every tensor a family asks for, in whatever shape it asks for, all zeros. With them and a DryBackend a config.json alone becomes a
// Model, so that its sizes come from the same code that would run it. All rows of a tensor are one row of zeros (stride 0): a model of 700 billion numbers takes
// no memory. Optional tensors are not there (has() is false), so that a family takes what it calls the usual case; experts are tensors of their own.
#pragma once
#include <memory>
#include <vector>

#include "files/checkpoint.h"

namespace ridge {

class PromisedWeights : public WeightFile {
 public:
  explicit PromisedWeights(FormatId matrices) : matrices_(matrices) {}      // vectors and matrices that do not fit its blocks are bf16
  const std::vector<TensorInfo>& tensors() const override { return none_; }
  bool has(std::string_view name) const override { return name.find("experts.0.") != std::string_view::npos && name.ends_with(".weight"); }
  StoredWeight get(std::string_view name) const override { return shaped(name, 1, 0); }
  StoredWeight shaped(std::string_view name, int64_t rows, int64_t cols) const override;
  std::string container() const override { return "config.json alone"; }

 private:
  FormatId matrices_;
  std::vector<TensorInfo> none_;
  mutable std::vector<std::unique_ptr<std::byte[]>> zeros_;                  // each longer than the one before; older rows still point to theirs
  mutable int64_t longest_ = 0;
};

// A checkpoint of promises for a configuration (normalized, as open_checkpoint has it). format unknown: what the configuration says its files hold.
FormatId promised_format(const Json& config);
void promise_weights(Checkpoint& checkpoint, FormatId format = FormatId::unknown);

}  // namespace ridge
