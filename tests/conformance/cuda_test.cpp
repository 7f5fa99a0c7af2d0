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

// Many tokens have a kernel of their own, in blocks of 128 rows and 192 tokens; 200 and 4 rows are not whole blocks, 130 inputs not whole units nor all chains.
TEST_F(Cuda, ATokensResultIsTheSameInAnyBatch) {
  Rng rng(9);
  for (const FormatId f : {FormatId::bf16, FormatId::q8_0, FormatId::q4_0, FormatId::nvfp4})
    for (const int cols : {1024, f == FormatId::bf16 ? 130 : 192}) {
      const auto w = encode(random_matrix(rng, 200, cols), f), small = encode(random_matrix(rng, 7, cols), f);
      const Matrix x = random_matrix(rng, 420, cols), bias = random_matrix(rng, 1, 200);
      auto backend = make_cuda_backend({.graphs = false});
      const Weight weight = backend->prepare(w->stored, {}), second = backend->prepare(small->stored, {});
      const Tensor tb = put(*backend, bias);
      const auto run = [&](int first, int n) {
        const Tensor out = backend->allocate_f32(n, 200), out2 = backend->allocate_f32(n, 7);
        run_step(*backend, plain_step(n), {Matmul{.out = {out, out2}, .x = put(*backend, x.slice(first, n)), .w = {&weight, &second}, .bias = {tb}}});
        return std::pair{get(*backend, out), get(*backend, out2)};
      };
      const auto [all, all2] = run(0, 420);
      for (const int n : {1, 5, 8, 16, 32, 64, 70, 200}) {
        const auto [some, some2] = run(203, n);
        const std::string what = std::string(format(f).name) + " in a batch of " + std::to_string(n);
        expect_same(some, all.slice(203, n), what);
        expect_same(some2, all2.slice(203, n), what + ", second weight");
      }
    }
}

// Attention of sequences over shuffled pages whose other positions hold NaNs: nothing may depend on them.
struct FlashCase {
  int n_heads = 8, n_kv_heads = 2, head_dim = 128;
  FormatId kv = FormatId::bf16;
  int window = 0;
  float softcap = 0;
  bool sinks = false;
  int page_size = 64;
  std::vector<SeqPlan> seqs;
};

struct FlashInput { std::vector<Matrix> q, k, v; Matrix sinks; };            // per sequence, over its whole length

FlashInput flash_input(Rng& rng, const FlashCase& c) {
  FlashInput in{.q = {}, .k = {}, .v = {}, .sinks = random_matrix(rng, 1, c.n_heads)};
  for (const SeqPlan& s : c.seqs) {
    const int n = s.n_past + s.n_rows;
    in.q.push_back(random_matrix(rng, n, c.n_heads * c.head_dim));
    for (float& v : in.q.back().values) v = c.kv == FormatId::bf16 ? bf16_to_f32(f32_to_bf16(v)) : f16_to_f32(f32_to_f16(v));
    in.k.push_back(random_matrix(rng, n, c.n_kv_heads * c.head_dim));
    in.v.push_back(random_matrix(rng, n, c.n_kv_heads * c.head_dim));
  }
  return in;
}

Matrix stack(const std::vector<Matrix>& parts) {
  Matrix m{0, parts[0].cols, {}};
  for (const Matrix& part : parts) m.values.insert(m.values.end(), part.values.begin(), part.values.end()), m.rows += part.rows;
  return m;
}

// Positions before `from` are stored by an earlier step; n_rows of each sequence's plan are computed in this one.
Matrix flash(Backend& b, const FlashCase& c, const FlashInput& in) {
  const PlannedStep planned = plan_step(c.seqs, {.page_size = c.page_size, .seed = 5});
  std::vector<SeqPlan> all_now;
  for (const SeqPlan& s : c.seqs) all_now.push_back({0, s.n_past + s.n_rows});
  const PlannedStep store = plan_step(all_now, {.page_size = c.page_size, .seed = 5}), poison = plan_step({{0, planned.n_pages * c.page_size}}, {.page_size = c.page_size});
  const KvPlane plane{c.n_kv_heads, c.head_dim, c.kv};
  const int64_t bytes = c.page_size * row_bytes(c.kv, c.n_kv_heads * c.head_dim);
  const KvRef kv{.base = b.allocate((planned.n_pages + 3) * 2 * bytes), .page_bytes = 2 * bytes, .offsets = {0, bytes, 0}, .planes = {plane, plane}, .page_size = c.page_size};
  const auto put_all = [&](const Step& step, const Matrix& k, const Matrix& v) {
    const Tensor q = b.allocate_f32(k.rows, c.n_heads * c.head_dim);
    run_step(b, step, {RopeStore{.q = q, .k = put(b, k), .v = put(b, v), .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .v_dim = c.head_dim, .kv = kv}});
  };
  Matrix nans{planned.n_pages * c.page_size, c.n_kv_heads * c.head_dim, {}};
  nans.values.assign(size_t(nans.rows * nans.cols), NAN);
  put_all(*poison.step, nans, nans);
  put_all(*store.step, stack(in.k), stack(in.v));
  std::vector<Matrix> q;
  for (size_t i = 0; i < c.seqs.size(); ++i) q.push_back(in.q[i].slice(c.seqs[i].n_past, c.seqs[i].n_rows));
  PagedAttention op{.out = b.allocate_f32(planned.step->n_tokens(), c.n_heads * c.head_dim), .q = put(b, stack(q)), .kv = kv, .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads,
                    .head_dim = c.head_dim, .v_dim = c.head_dim, .scale = 1 / std::sqrt(float(c.head_dim)), .window = c.window, .softcap = c.softcap};
  if (c.sinks) op.sinks = put(b, in.sinks);
  run_step(b, *planned.step, {op});
  return get(b, op.out);
}

TEST_F(Cuda, AttentionOnTensorCoresAgreesWithRefAndARowIsTheSameHoweverItComes) {
  Rng rng(10);
  for (int i = 0; i < 18; ++i) {
    FlashCase c{.n_kv_heads = pick(rng, {1, 2, 3}), .head_dim = std::array{128, 64, 256}[i % 3], .kv = i % 2 ? FormatId::bf16 : FormatId::f16, .window = pick(rng, {0, 0, 1, 100, 200}),
                .softcap = rng() % 3 ? 0.0f : 5.0f, .sinks = rng() % 3 == 0, .page_size = pick(rng, {16, 32, 64})};
    c.n_heads = c.n_kv_heads * pick(rng, {1, 2, 3, 4, 7, 16});
    c.seqs = {{0, between(rng, 130, 400)}, {between(rng, 0, 300), 1}, {between(rng, 0, 200), between(rng, 16, 60)}, {between(rng, 0, 300), between(rng, 2, 15)}, {between(rng, 0, 40), 16}};
    const std::string what = "heads " + std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv_heads) + " dim " + std::to_string(c.head_dim) + " " + std::string(format(c.kv).name) +
                             " window " + std::to_string(c.window) + " cap " + std::to_string(c.softcap) + " pages of " + std::to_string(c.page_size);
    const FlashInput in = flash_input(rng, c);
    auto backend = make_cuda_backend({.graphs = false}), ref = make_ref_backend();
    const Matrix all = flash(*backend, c, in);
    expect_close(all, flash(*ref, c, in), c.kv == FormatId::bf16 ? 8e-3f : 1.5e-3f, what);
    // Each sequence alone, in one piece and its last rows in pieces of other sizes.
    int64_t first = 0;
    for (size_t s = 0; s < c.seqs.size(); ++s) {
      const SeqPlan plan = c.seqs[s];
      for (const int n : {plan.n_rows, 1, std::min(plan.n_rows, 9), std::min(plan.n_rows, 17)}) {
        FlashCase alone = c;
        alone.page_size = pick(rng, {16, 32, 64});
        alone.seqs = {{plan.n_past + plan.n_rows - n, n}};
        const FlashInput own{.q = {in.q[s]}, .k = {in.k[s]}, .v = {in.v[s]}, .sinks = in.sinks};
        expect_same(flash(*backend, alone, own), all.slice(first + plan.n_rows - n, n), what + ", last " + std::to_string(n) + " rows of sequence " + std::to_string(s) + " alone");
      }
      first += plan.n_rows;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ridge::conformance
