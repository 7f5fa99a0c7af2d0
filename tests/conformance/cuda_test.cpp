// The CUDA backend against ref, op by op, where there is a GPU: within a tolerance in the f32 check mode; with bf16 activations the matmuls against exact sums of
// the rounded numbers; and bit for bit that a row's result does not depend on the batch or on replaying a graph.
#include "base/float_types.h"
#include "conformance/conformance.h"
#include "cuda/cuda_backend.h"

namespace ridge::conformance {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

Step plain_step(int n_tokens) {
  Step step({.max_tokens = n_tokens, .max_seqs = 1, .max_logits = n_tokens, .max_pages = 1});
  step.clear();
  step.set_page_size(64);
  step.add_seq({.slot = 0, .first_row = 0, .n_rows = n_tokens, .n_context = n_tokens, .rope_row = 0, .first_page = {}});
  for (int t = 0; t < n_tokens; ++t) step.add_token(t % 50, t, 0, true);
  return step;
}

TEST_F(Cuda, RowOpsAgreeWithRef) {
  Rng rng(7);
  for (const int cols : {64, 576, 1023, 4096}) {
    const int n = 5;
    const Step step = plain_step(n);
    const Matrix x = random_matrix(rng, n, cols), pending = random_matrix(rng, n, cols), weight = random_matrix(rng, 1, cols), bias = random_matrix(rng, 1, cols);
    for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
      Matrix results[2];
      for (int which = 0; which < 2; ++which) {
        auto backend = which == 0 ? make_ref_backend() : make_cuda_backend({.check_f32 = true});
        const Tensor tx = put(*backend, x), out = backend->allocate_f32(n, cols);
        run_step(*backend, step, {AddNorm{.out = out, .x = tx, .pending = put(*backend, pending), .pending_scale = 0.5f, .weight = put(*backend, weight),
                                          .bias = put(*backend, bias), .eps = 1e-5f, .weight_offset = 1.0f, .kind = kind},
                                  Activate{.out = out, .gate = out, .up = tx, .kind = ActKind::gelu_tanh}, ScaleCap{.x = out, .scale = 2.0f, .cap = 30.0f}});
        results[which] = get(*backend, out);
      }
      expect_close(results[1], results[0], 2e-6f, "norm, activation, cap");
    }
  }
}

TEST_F(Cuda, MatmulsAreTheSumsOfTheRoundedProducts) {
  Rng rng(8);
  for (const FormatId f : {FormatId::bf16, FormatId::f16, FormatId::q8_0, FormatId::q4_0, FormatId::nvfp4, FormatId::q4_1, FormatId::q6_k}) {
    for (const int n_tokens : {1, 3, 8, 9, 30, 70}) {
      const int rows = between(rng, 1, 90), cols = f == FormatId::q6_k ? 512 : f == FormatId::nvfp4 ? 320 : 352;
      const auto w = encode(random_matrix(rng, rows, cols), f);
      const Matrix x = random_matrix(rng, n_tokens, cols), bias = random_matrix(rng, 1, rows);
      auto backend = make_cuda_backend({});
      const Weight weight = backend->prepare(w->stored, {});
      const Tensor out = backend->allocate_f32(n_tokens, rows);
      const Tensor tx = put(*backend, x), tb = put(*backend, bias);
      Matrix got;
      for (int pass = 0; pass < 3; ++pass) {                                 // plain, captured, replayed
        run_step(*backend, plain_step(n_tokens), {Matmul{.out = {out}, .x = tx, .w = {&weight}, .bias = {tb}}});
        const Matrix again = get(*backend, out);
        if (pass > 0) expect_same(again, got, "run again");
        got = again;
      }
      Matrix want{n_tokens, rows, std::vector<float>(size_t(n_tokens) * rows)};
      std::vector<float> row(cols);
      for (int r = 0; r < rows; ++r) {
        decode_stored_row(row.data(), w->stored, r);
        const bool rounded = f == FormatId::f16 || f == FormatId::q4_1 || f == FormatId::q6_k;          // kept as bf16
        for (int t = 0; t < n_tokens; ++t) {
          double sum = bias.values[r];
          for (int k = 0; k < cols; ++k) sum += double(rounded ? bf16_to_f32(f32_to_bf16(row[k])) : row[k]) * bf16_to_f32(f32_to_bf16(x.row(t)[k]));
          want.row(t)[r] = float(sum);
        }
      }
      expect_close(got, want, 3e-6f, std::string(format(f).name) + ", " + std::to_string(n_tokens) + " tokens");
    }
  }
}

TEST_F(Cuda, ATokensResultIsTheSameInAnyBatch) {
  Rng rng(9);
  for (const FormatId f : {FormatId::bf16, FormatId::q8_0, FormatId::q4_0, FormatId::nvfp4}) {
    const auto w = encode(random_matrix(rng, 200, 1024), f);
    const Matrix x = random_matrix(rng, 70, 1024);
    auto backend = make_cuda_backend({.graphs = false});
    const Weight weight = backend->prepare(w->stored, {});
    const auto run = [&](int first, int n) {
      const Tensor out = backend->allocate_f32(n, 200);
      run_step(*backend, plain_step(n), {Matmul{.out = {out}, .x = put(*backend, x.slice(first, n)), .w = {&weight}}});
      return get(*backend, out);
    };
    const Matrix all = run(0, 70);
    for (const int n : {1, 5, 8, 16, 32, 64}) expect_same(run(3, n), all.slice(3, n), std::string(format(f).name) + " in a batch of " + std::to_string(n));
  }
}

}  // namespace
}  // namespace ridge::conformance
