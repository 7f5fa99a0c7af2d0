// Rows of a tensor that become inputs (the keys of latent attention): the same numbers whatever the format they are stored in.
#include <gtest/gtest.h>

#include <random>

#include "cpu/cpu_backend.h"
#include "model/weights.h"
#include "ref/ref_backend.h"

namespace ridge {
namespace {

// A checkpoint of one matrix.
class OneMatrix : public WeightFile {
 public:
  OneMatrix(const std::vector<float>& values, FormatId f, int64_t rows, int64_t cols) : bytes_(static_cast<size_t>(rows * row_bytes(f, cols))) {
    stored_ = {.name = "w", .format = f, .rows = rows, .cols = cols, .codes = view(bytes_.data(), f, rows, cols)};
    for (int64_t r = 0; r < rows; ++r) format(f).encode_row(stored_.codes.row(r), values.data() + r * cols, cols);
    tensors_ = {{.name = "w", .stored_name = "w", .format = f, .shape = {rows, cols}, .bytes = bytes_.size(), .file = ""}};
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  bool has(std::string_view name) const override { return name == "w"; }
  StoredWeight get(std::string_view) const override { return stored_; }
  std::string container() const override { return "memory"; }
  float at(int64_t r, int64_t c) const {
    std::vector<float> row(static_cast<size_t>(stored_.cols));
    decode_stored_row(row.data(), stored_, r);
    return row[static_cast<size_t>(c)];
  }

 private:
  std::vector<std::byte> bytes_;
  StoredWeight stored_;
  std::vector<TensorInfo> tensors_;
};

// Row i of the identity times the weight is what its input i counts in every output.
std::vector<float> column(Backend& backend, const Weight& w, int64_t input) {
  std::vector<float> one(static_cast<size_t>(w.cols), 0.0f), out(static_cast<size_t>(w.rows));
  one[static_cast<size_t>(input)] = 1.0f;
  Step step({.max_tokens = 1, .max_seqs = 1, .max_logits = 1, .max_pages = 1});
  step.clear();
  const Tensor x = backend.upload(one.data(), w.cols), y = backend.allocate_f32(1, w.rows);
  backend.begin(step);
  backend.run(Matmul{.out = {y}, .x = x, .w = {&w}});
  backend.end();
  backend.download(out.data(), y);
  return out;
}

TEST(TransposedRows, HoldTheRowsOfTheTensorInEveryFormat) {
  constexpr int64_t kRows = 96, kCols = 256, kFirst = 40, kTaken = 24;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kCols);
  for (float& v : values) v = normal(rng);
  for (const FormatId f : {FormatId::f32, FormatId::bf16, FormatId::q8_0, FormatId::q6_k, FormatId::nvfp4})
    for (const bool on_cpu : {false, true}) {
      Checkpoint checkpoint{.name = "one matrix"};
      auto file = std::make_unique<OneMatrix>(values, f, kRows, kCols);
      const OneMatrix& truth = *file;
      checkpoint.weights = std::move(file);
      const auto backend = on_cpu ? make_cpu_backend({.n_threads = 1}) : make_ref_backend();
      Model model;
      const ModelOptions options;
      Weights weights(checkpoint, *backend, options, model);
      const Weight& w = *weights.matrix_rows_transposed("attention", "w", {kFirst, kTaken, kRows}, kCols);
      ASSERT_EQ(w.rows, kCols);
      ASSERT_EQ(w.cols, kTaken);
      for (const int64_t input : {int64_t{0}, int64_t{7}, kTaken - 1}) {
        const std::vector<float> got = column(*backend, w, input);
        for (int64_t c = 0; c < kCols; ++c) {
          const float wanted = truth.at(kFirst + input, c);
          ASSERT_NEAR(got[static_cast<size_t>(c)], wanted, std::abs(wanted) * 0x1p-11f + 1e-6f)      // f16 at the worst
              << format(f).name << (on_cpu ? " on cpu" : " on ref");
        }
      }
    }
}

}  // namespace
}  // namespace ridge
