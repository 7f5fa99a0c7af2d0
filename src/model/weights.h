// The door between a checkpoint's tensors and a model's weights: takes a tensor by Hugging Face's name, checks its shape against what the config promises,
// prepares it on the backend with the right arithmetic, and keeps count by component. Plain number formats are multiplied in f32, quantized ones as the
// options say, or finer in a small model than in a large one.
#pragma once
#include <set>
#include <string>
#include <string_view>

#include "model/model.h"

namespace ridge {

// Part of a tensor that fuses several projections: rows [first, first + n) of `total`; or, where heads of several projections take turns, n rows in runs of
// `run` that begin `stride` rows apart, the first of them at `first`.
struct Rows {
  int64_t first, n, total;
  int64_t run = 0, stride = 0;
  int64_t at(int64_t i) const { return run == 0 ? first + i : first + i / run * stride + i % run; }
};

class Weights {
 public:
  Weights(const Checkpoint& checkpoint, Backend& backend, const ModelOptions& options, Model& model);

  bool has(std::string_view name) const { return file_.has(name); }
  StoredWeight stored(const std::string& name) const { return file_.get(name); }

  // [rows, cols] = [outputs, inputs]; the model owns it.
  const Weight* matrix(std::string_view component, const std::string& name, int64_t rows, int64_t cols) { return matrix_rows(component, name, {0, rows, rows}, cols); }
  const Weight* matrix_rows(std::string_view component, const std::string& name, Rows rows, int64_t cols);
  const Weight* matrix_rows_transposed(std::string_view component, const std::string& name, Rows rows, int64_t cols);   // those rows as inputs: [cols, rows.n]
  // Expert e of a tensor that stacks n_experts of them: those rows (outputs) of it, `cols` inputs. transposed: an expert lies as [inputs, outputs].
  const Weight* expert(std::string_view component, const std::string& name, int e, int n_experts, Rows rows, int64_t cols, bool transposed);
  Tensor expert_biases(std::string_view component, const std::string& name, int n_experts, Rows rows);            // f32 [n_experts, rows.n]
  Tensor expert_of_token(std::string_view component, const std::string& name, int64_t n_vocab, int64_t top_k, int n_experts);   // i32 [n_vocab, top_k]
  const Weight* shared_matrix(std::string_view component, const std::string& name, int64_t rows, int64_t cols);   // its parameters are counted elsewhere (tied head)
  Weight table(std::string_view component, const std::string& name, int64_t rows, int64_t cols);                  // for Embed: not streamed
  Tensor vector(std::string_view component, const std::string& name, int64_t n) { return vector_part(component, name, {0, n, n}); }
  Tensor vector_part(std::string_view component, const std::string& name, Rows part);
  Tensor scaled_vector(std::string_view component, const std::string& name, int64_t n, float scale);                // each number times scale
  Tensor vectors(std::string_view component, const std::vector<std::string>& names, int64_t n_each);              // several, one after the other

  float number(std::string_view component, const std::string& name);                                              // a tensor of one number
  void ignore(const std::vector<std::string>& names) { used_.insert(names.begin(), names.end()); }                // in the file, and rightly of no use

  // All numbers of a tensor of any shape, for what is computed from them at load, and the way to the backend: [rows, values.size() / rows].
  std::vector<float> values(const std::string& name, int64_t n);
  Tensor constant(std::string_view component, const std::string& name, const std::vector<float>& values, int64_t rows = 1);

  // From here on matrices lie in the file as [inputs, outputs] (GPT-2's Conv1D).
  void set_transposed(bool transposed) { transposed_ = transposed; }

  // Refuses a checkpoint whose layers hold tensors that nobody asked for: the model would not be what its author made. What lies outside of `layers` (MTP
  // modules, vision towers, a tied head's copy) and buffers without learned values are nobody's business.
  void refuse_unused(const std::string& layers, int n_layers) const;

 private:
  std::vector<float> numbers(const std::string& name, int64_t n);                                                 // of a vector
  StoredWeight checked(const std::string& name, Rows rows, int64_t cols, bool transposed);
  const Weight* prepare(const StoredWeight& stored, int k_block = 0);
  ComponentSize& count(std::string_view component, int64_t n_params, int64_t bytes, bool streamed, const std::string& name);

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
