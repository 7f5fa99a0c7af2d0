// The door between a checkpoint's tensors and a model's weights: takes a tensor by Hugging Face's name, checks its shape against what the config promises,
// prepares it on the backend with the right arithmetic, and keeps count by component. Plain number formats are multiplied in f32, quantized ones as the
// options say, or finer in a small model than in a large one.
#pragma once
#include <set>
#include <string>
#include <string_view>

#include "model/model.h"

namespace ridge {

// Part of a tensor that fuses several projections: rows [first, first + n) of `total`.
struct Rows {
  int64_t first, n, total;
};

class Weights {
 public:
  Weights(const Checkpoint& checkpoint, Backend& backend, const ModelOptions& options, Model& model);

  bool has(std::string_view name) const { return file_.has(name); }
  StoredWeight stored(const std::string& name) const { return file_.get(name); }

  // [rows, cols] = [outputs, inputs]; the model owns it.
  const Weight* matrix(std::string_view component, const std::string& name, int64_t rows, int64_t cols) { return matrix_rows(component, name, {0, rows, rows}, cols); }
  const Weight* matrix_rows(std::string_view component, const std::string& name, Rows rows, int64_t cols);
  const Weight* shared_matrix(std::string_view component, const std::string& name, int64_t rows, int64_t cols);   // its parameters are counted elsewhere (tied head)
  Weight table(std::string_view component, const std::string& name, int64_t rows, int64_t cols);                  // for Embed: not streamed
  Tensor vector(std::string_view component, const std::string& name, int64_t n) { return vector_part(component, name, {0, n, n}); }
  Tensor vector_part(std::string_view component, const std::string& name, Rows part);

  // From here on matrices lie in the file as [inputs, outputs] (GPT-2's Conv1D).
  void set_transposed(bool transposed) { transposed_ = transposed; }

  // Refuses a checkpoint whose layers hold tensors that nobody asked for: the model would not be what its author made. What lies outside of `layers` (MTP
  // modules, vision towers, a tied head's copy) and buffers without learned values are nobody's business.
  void refuse_unused(const std::string& layers, int n_layers) const;

 private:
  StoredWeight checked(const std::string& name, Rows rows, int64_t cols, bool transposed);
  const Weight* prepare(const StoredWeight& stored);
  void count(std::string_view component, int64_t n_params, int64_t bytes, bool streamed, const std::string& name);

  const WeightFile& file_;
  Backend& backend_;
  const ModelOptions& options_;
  FormatId activations_;                     // of quantized weights
  Model& model_;
  bool transposed_ = false;
  std::set<std::string, std::less<>> used_;
  int64_t total_bytes_ = 0, done_bytes_ = 0;
};

}  // namespace ridge
