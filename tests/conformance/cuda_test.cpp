// The CUDA backend against ref, op by op, where there is a GPU: within a tolerance in the f32 check mode; with bf16 activations the matmuls against exact sums of
// the rounded numbers; and bit for bit that a row's result does not depend on the batch or on replaying a graph.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "base/float_types.h"
#include "conformance/conformance.h"
#include "cuda/cuda_backend.h"
#include "formats/mxfp4.h"
#include "formats/q4_1.h"

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

// The ways a weight may be stored that have units of their own on the device.
enum class Planes { blocks, nvfp4_planes, mxfp4_planes, fp8_tensor, fp8_rows, fp8_squares };
struct Storage {
  FormatId format;
  Planes planes = Planes::blocks;
  std::string name() const { return std::string(ridge::format(format).name) + (planes == Planes::blocks ? "" : ", planes " + std::to_string(int(planes))); }
  int block() const { return planes == Planes::nvfp4_planes ? 16 : ridge::format(format).block_elems; }
};
const std::vector<Storage> kStorages = {{FormatId::bf16}, {FormatId::q8_0}, {FormatId::q4_0}, {FormatId::q4_1}, {FormatId::nvfp4}, {FormatId::nvfp4, Planes::nvfp4_planes}, {FormatId::mxfp4},
                                        {FormatId::mxfp4, Planes::mxfp4_planes}, {FormatId::fp8_e4m3, Planes::fp8_tensor}, {FormatId::fp8_e4m3, Planes::fp8_rows},
                                        {FormatId::fp8_e4m3, Planes::fp8_squares}};

// Random codes and scales, whole numbers of which a weight of about `spread` is made.
std::unique_ptr<OwnedWeight> stored_as(Rng& rng, const Storage& how, int rows, int cols, float spread = 1.0f) {
  if (how.planes == Planes::blocks) return encode(random_matrix(rng, rows, cols, spread), how.format);
  auto w = std::make_unique<OwnedWeight>();
  const auto scale = [&] { return spread * (0.5f + float(rng() % 1000) / 1000.0f); };
  if (how.planes == Planes::nvfp4_planes) {
    w->bytes.resize(size_t(rows) * cols / 2), w->scales.resize(size_t(rows) * cols / 16);
    for (std::byte& b : w->bytes) b = std::byte(rng());
    for (std::byte& b : w->scales) b = std::byte(rng() % 40 == 0 ? 0 : 8 + rng() % 0x50);
    w->stored = {.name = "weight", .format = FormatId::nvfp4, .rows = rows, .cols = cols, .codes = view(w->bytes.data(), FormatId::u8, rows, cols / 2),
                 .scales = view(w->scales.data(), FormatId::fp8_e4m3, rows, cols / 16), .scale = 0.1f * scale()};
    return w;
  }
  if (how.planes == Planes::mxfp4_planes) {
    w->bytes.resize(size_t(rows) * cols / 2), w->scales.resize(size_t(rows) * cols / 32);
    for (std::byte& b : w->bytes) b = std::byte(rng());
    for (size_t i = 0; i < w->scales.size(); ++i) {
      w->scales[i] = std::byte(int(119 + rng() % 8) + std::ilogb(spread));
      if (rng() % 40 == 0) w->scales[i] = std::byte(rng() % 256), std::fill_n(w->bytes.begin() + ptrdiff_t(i * 16), 16, std::byte(0x80));      // zeros of both signs
    }
    w->stored = {.name = "weight", .format = FormatId::mxfp4, .rows = rows, .cols = cols, .codes = view(w->bytes.data(), FormatId::u8, rows, cols / 2),
                 .scales = view(w->scales.data(), FormatId::u8, rows, cols / 32)};
    return w;
  }
  w = encode(random_matrix(rng, rows, cols, 4.0f), FormatId::fp8_e4m3);
  for (std::byte& b : w->bytes)
    if (rng() % 50 == 0) b = std::byte(rng() % 8 | (rng() % 2) << 7);        // subnormals and zeros of both signs
  const int n = how.planes == Planes::fp8_rows ? 1 : how.planes == Planes::fp8_squares ? (cols + 127) / 128 : 0;
  w->stored.scale = n > 0 ? 1.0f : 0.25f * scale();
  if (n == 0) return w;
  w->scales.resize(size_t(rows) * n * 4);
  w->stored.scales = view(w->scales.data(), FormatId::f32, rows, n);
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < n; ++i) w->stored.scales.f32(r)[i] = n > 1 && r % 128 > 0 ? w->stored.scales.f32(r - 1)[i] : 0.25f * scale();
  return w;
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
  std::vector<Storage> storages = kStorages;
  for (const FormatId f : {FormatId::f16, FormatId::q6_k}) storages.push_back({f});
  for (const Storage& how : storages) {
    const FormatId f = how.format;
    for (const int n_tokens : {1, 3, 8, 9, 30, 70}) {
      const int rows = between(rng, 1, 300), cols = f == FormatId::q6_k ? 512 : how.block() == 64 ? 320 : 352;
      const auto w = stored_as(rng, how, rows, cols);
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
        const bool rounded = f == FormatId::f16 || f == FormatId::q6_k;          // kept as bf16
        for (int t = 0; t < n_tokens; ++t) {
          double sum = bias.values[r];
          for (int k = 0; k < cols; ++k) sum += double(rounded ? bf16_to_f32(f32_to_bf16(row[k])) : row[k]) * bf16_to_f32(f32_to_bf16(x.row(t)[k]));
          want.row(t)[r] = float(sum);
        }
      }
      expect_close(got, want, 3e-6f, how.name() + ", " + std::to_string(n_tokens) + " tokens");
    }
  }
}

// In batches of several sizes, each output against the exact sum of its own products of the stored numbers: off by at most `share` of what they add up to in size, and `least`.
void expect_sums_of_products(Backend& backend, const Weight& weight, const StoredWeight& stored, const Matrix& x, double share, double least, const std::string& what) {
  std::vector<float> row(size_t(x.cols));
  for (const int n : {1, 8, 30, int(x.rows)}) {
    const Tensor out = backend.allocate_f32(n, weight.rows);
    run_step(backend, plain_step(n), {Matmul{.out = {out}, .x = put(backend, x.slice(0, n)), .w = {&weight}}});
    const Matrix got = get(backend, out);
    for (int64_t r = 0; r < weight.rows; ++r) {
      decode_stored_row(row.data(), stored, r);
      for (int t = 0; t < n; ++t) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < x.cols; ++k) {
          const double product = double(row[size_t(k)]) * bf16_to_f32(f32_to_bf16(x.row(t)[k]));
          sum += product, size += std::fabs(product);
        }
        ASSERT_LE(std::fabs(got.row(t)[r] - sum), share * size + least) << what << ", row " << r << ", token " << t << " of " << n;
      }
    }
  }
}

// Rows of scales from one end of e8m0 to the other, each against what its own products add up to. Up to a scale of 2 the codes stay; above they become bf16, and nothing is lost (but subnormals may be).
TEST_F(Cuda, Mxfp4IsExactForEveryScale) {
  Rng rng(18);
  struct Case { int least, most; FormatId kept; };
  for (const Case& c : {Case{0, 128, FormatId::mxfp4}, Case{90, 240, FormatId::bf16}, Case{100, 129, FormatId::bf16}}) {
    const int rows = 2 * (c.most - c.least + 1), cols = 192, n_all = 200;
    const auto w = encode(random_matrix(rng, rows, cols), FormatId::mxfp4);
    auto* blocks = reinterpret_cast<BlockMxfp4*>(w->bytes.data());
    for (int i = 0; i < rows * cols / 32; ++i) {
      for (uint8_t& pair : blocks[i].q) pair = uint8_t(rng());
      blocks[i].e = uint8_t(std::min(c.most, c.least + i / (cols / 32) / 2 + int(rng() % 3)));
    }
    blocks[7].e = 255, std::fill_n(blocks[7].q, 16, uint8_t{0x08});           // zeros under a scale that is no number
    const Matrix x = random_matrix(rng, n_all, cols);
    auto backend = make_cuda_backend({.graphs = false});
    const Weight weight = backend->prepare(w->stored, {});
    EXPECT_EQ(weight.format, c.kept) << "scales of " << c.least << " to " << c.most;
    expect_sums_of_products(*backend, weight, w->stored, x, 1e-6, 0x1p-118, "scales of " + std::to_string(c.least) + " to " + std::to_string(c.most));
    if (HasFatalFailure()) return;
  }
}

// The largest scales overflow as they do in ref.
TEST_F(Cuda, Mxfp4BeyondTheNumbersIsInfinite) {
  Rng rng(19);
  const auto w = encode(random_matrix(rng, 20, 64), FormatId::mxfp4);
  auto* block = reinterpret_cast<BlockMxfp4*>(w->bytes.data());
  block->e = 254, block->q[0] = 0x07;
  Matrix x = random_matrix(rng, 3, 64);
  for (int t = 0; t < 3; ++t) {
    std::fill_n(x.row(t), 32, 0.0f);
    x.row(t)[0] = 1.0f;
  }
  std::fill_n(block->q + 1, 15, uint8_t{0});
  auto backend = make_cuda_backend({.graphs = false});
  const Weight weight = backend->prepare(w->stored, {});
  const Tensor out = backend->allocate_f32(3, 20);
  run_step(*backend, plain_step(3), {Matmul{.out = {out}, .x = put(*backend, x), .w = {&weight}}});
  const Matrix got = get(*backend, out);
  for (int t = 0; t < 3; ++t) {
    EXPECT_EQ(got.row(t)[0], INFINITY);
    EXPECT_TRUE(std::isfinite(got.row(t)[1]));
  }
}

// Minimums that are large beside the steps, as weights far from zero have them: what is added and taken away again must not show.
TEST_F(Cuda, MinimumsMayBeLargerThanAllSteps) {
  Rng rng(20);
  const int rows = 70, cols = 352, n_all = 200;
  const auto w = encode(random_matrix(rng, rows, cols), FormatId::q4_1);
  auto* blocks = reinterpret_cast<BlockQ4_1*>(w->bytes.data());
  for (int i = 0; i < rows * cols / 32; ++i) {
    for (uint8_t& pair : blocks[i].q) pair = uint8_t(rng());
    blocks[i].d = f32_to_f16((rng() % 8 ? 1.0f : -1.0f) * float(1 + rng() % 100) / 64), blocks[i].m = f32_to_f16(rng() % 9 ? (float(rng() % 2001) - 1000) / 32 : 0.0f);
  }
  const Matrix x = random_matrix(rng, n_all, cols);
  auto backend = make_cuda_backend({.graphs = false});
  const Weight weight = backend->prepare(w->stored, {});
  EXPECT_EQ(weight.format, FormatId::q4_1);
  expect_sums_of_products(*backend, weight, w->stored, x, 2e-6, 0, "minimums");
}

// Many tokens have a kernel of their own, in blocks of 128 rows and 64 to 192 tokens; 200 and 7 rows are not whole blocks, 130 inputs not whole units nor all chains.
TEST_F(Cuda, ATokensResultIsTheSameInAnyBatch) {
  Rng rng(9);
  for (const Storage& how : kStorages)
    for (const int cols : {1024, how.block() == 1 ? 130 : 192}) {
      const auto w = stored_as(rng, how, 200, cols), small = stored_as(rng, how, 7, cols);
      const Matrix x = random_matrix(rng, 420, cols), bias = random_matrix(rng, 1, 200);
      auto backend = make_cuda_backend({.graphs = false});
      const Weight weight = backend->prepare(w->stored, {}), second = backend->prepare(small->stored, {});
      const Tensor tb = put(*backend, bias);
      const auto run_on = [&](Backend& backend, const Weight& weight, const Weight& second, const Tensor& tb, int first, int n) {
        const Tensor out = backend.allocate_f32(n, 200), out2 = backend.allocate_f32(n, 7);
        run_step(backend, plain_step(n), {Matmul{.out = {out, out2}, .x = put(backend, x.slice(first, n)), .w = {&weight, &second}, .bias = {tb}}});
        return std::pair{get(backend, out), get(backend, out2)};
      };
      const auto run = [&](int first, int n) { return run_on(*backend, weight, second, tb, first, n); };
      const auto [all, all2] = run(0, 420);
      for (const int n : {1, 5, 8, 9, 16, 32, 33, 64, 70, 100, 150, 200}) {
        const auto [some, some2] = run(203, n);
        const std::string what = how.name() + " in a batch of " + std::to_string(n);
        expect_same(some, all.slice(203, n), what);
        expect_same(some2, all2.slice(203, n), what + ", second weight");
      }
      for (const cuda::GemmWay way : {cuda::GemmWay{64, false}, {64, true}, {128, false}, {128, true}, {184, false}, {192, false}, {192, true}}) {
        auto other = make_cuda_backend({.graphs = false, .gemm_way = way});
        const Weight weight_there = other->prepare(w->stored, {}), second_there = other->prepare(small->stored, {});
        const auto [some, some2] = run_on(*other, weight_there, second_there, put(*other, bias), 203, 200);
        const std::string what = how.name() + " in blocks of " + std::to_string(way.tokens) + (way.by_chain ? " by chain" : "");
        expect_same(some, all.slice(203, 200), what);
        expect_same(some2, all2.slice(203, 200), what + ", second weight");
      }
    }
}

// More blocks of rows than run at once: some take several in turn; 30,011 are as many of 256 rows as run at once, 40,003 more than those of 192. 832 inputs are not all chains in the last step, 320 and 192 not even in the only one.
TEST_F(Cuda, ATokensResultIsTheSameInAnyBatchBeforeManyRows) {
  Rng rng(10);
  struct Shape { int rows, cols; std::vector<int> batches; };
  for (const Storage& how : kStorages)
    for (const auto& [rows, cols, batches] : {Shape{17011, 1024, {5, 8, 9, 32, 33, 64}}, Shape{3000, 4096, {33, 64}}, Shape{12289, 832, {7, 9, 32}}, Shape{17011, 832, {9, 32}}, Shape{12289, 320, {32}}, Shape{17011, 320, {32}}, Shape{17011, 192, {9}}, Shape{30011, 576, {16, 32}},
                                             Shape{40003, 1088, {8, 9, 32}}}) {
      const auto w = stored_as(rng, how, rows, cols);
      const Matrix x = random_matrix(rng, 80, cols);
      auto backend = make_cuda_backend({.graphs = false});
      const Weight weight = backend->prepare(w->stored, {});
      const auto run = [&](int first, int n) {
        const Tensor out = backend->allocate_f32(n, rows);
        run_step(*backend, plain_step(n), {Matmul{.out = {out}, .x = put(*backend, x.slice(first, n)), .w = {&weight}}});
        return get(*backend, out);
      };
      const Matrix all = run(0, 80);
      for (const int n : batches) expect_same(run(11, n), all.slice(11, n), how.name() + ", " + std::to_string(cols) + " inputs, in a batch of " + std::to_string(n));
    }
}

// A layer's worth of ops around matmuls of few tokens: in one step neighbours share kernels, one op a step each has its own.
TEST_F(Cuda, NeighboursInOneKernelGiveTheBitsOfOneByOne) {
  Rng rng(11);
  for (const Storage& how : kStorages) {
    for (const int n_tokens : {1, 3, 6, 8}) {
      const int d_model = 576, d_ff = 1216;
      const auto o = stored_as(rng, how, d_model, d_model), gate = stored_as(rng, how, d_ff, d_model), up = stored_as(rng, how, d_ff, d_model), down = stored_as(rng, how, d_model, d_ff);
      const Matrix x = random_matrix(rng, n_tokens, d_model), seen = random_matrix(rng, n_tokens, d_model), norm = random_matrix(rng, 1, d_model), bias = random_matrix(rng, 1, d_ff);
      Matrix results[2][3];
      for (int way = 0; way < 2; ++way) {
        auto backend = make_cuda_backend({.graphs = false});
        const Weight wo = backend->prepare(o->stored, {}), wg = backend->prepare(gate->stored, {}), wu = backend->prepare(up->stored, {}), wd = backend->prepare(down->stored, {});
        const Tensor tx = put(*backend, x), ts = put(*backend, seen), tn = put(*backend, norm), tb = put(*backend, bias);
        const Tensor pending = backend->allocate_f32(n_tokens, d_model), normed = backend->allocate_f32(n_tokens, d_model), tg = backend->allocate_f32(n_tokens, d_ff),
                     tu = backend->allocate_f32(n_tokens, d_ff);
        const AddNorm add_norm{.out = normed, .x = tx, .pending = pending, .pending_scale = 0.75f, .weight = tn, .eps = 1e-5f, .weight_offset = 0.5f};
        const std::vector<Op> ops = {Matmul{.out = {pending}, .x = ts, .w = {&wo}}, add_norm, Matmul{.out = {tg, tu}, .x = normed, .w = {&wg, &wu}, .bias = {tb}},
                                     Activate{.out = tg, .gate = tg, .up = tu, .kind = ActKind::silu}, Matmul{.out = {pending}, .x = tg, .w = {&wd}}, add_norm};
        if (way == 0) run_step(*backend, plain_step(n_tokens), ops);
        else run_apart(*backend, plain_step(n_tokens), ops);
        results[way][0] = get(*backend, tx), results[way][1] = get(*backend, tg), results[way][2] = get(*backend, normed);
      }
      for (int i = 0; i < 3; ++i) {
        if (i == 1 && n_tokens > 5) continue;                                  // what is activated may go to the next matmul and nowhere else
        expect_same(results[0][i], results[1][i], how.name() + ", " + std::to_string(n_tokens) + " tokens, tensor " + std::to_string(i));
      }
    }
  }
}

// A matmul multiplies its sums with the factor of the norm before it, which few tokens, several and many come by in ways of their own: a row is the same, and nearly that of a norm and a matmul apart.
TEST_F(Cuda, ANormsRowsBeforeAMatmulAreTheSameInAnyBatch) {
  Rng rng(14);
  for (const FormatId format : {FormatId::bf16, FormatId::q8_0, FormatId::nvfp4})      // inputs as a row has them, in halves, and for wgmma
    for (const int d : {64, 576, 1024, 2112, 4096, 4160, 8192, 8256})
      for (const bool weighted : {true, false}) {
        if (!weighted && d != 576) continue;
        const int n_out = format == FormatId::nvfp4 && d == 576 ? 30011 : d == 4096 ? 5000 : 80, n_all = 70;      // several_wide.cu, rows for more blocks than tokens, and for fewer
        const auto w = encode(random_matrix(rng, n_out, d), format);
        const Matrix x = random_matrix(rng, n_all, d), pending = random_matrix(rng, n_all, d), norm = random_matrix(rng, 1, d);
        auto backend = make_cuda_backend({.graphs = false});
        const Weight prepared = backend->prepare(w->stored, {});
        const Tensor tn = put(*backend, norm);
        const auto run = [&](int n, bool apart) {
          const Tensor tx = put(*backend, x.slice(0, n)), tp = put(*backend, pending.slice(0, n)), normed = backend->allocate_f32(n, d), out = backend->allocate_f32(n, n_out);
          const AddNorm add_norm{.out = normed, .x = tx, .pending = tp, .pending_scale = 0.75f, .weight = weighted ? tn : Tensor{}, .eps = 1e-5f, .weight_offset = 0.5f};
          const Matmul matmul{.out = {out}, .x = normed, .w = {&prepared}};
          if (apart) run_step(*backend, plain_step(n), {add_norm}), run_step(*backend, plain_step(n), {matmul});
          else run_step(*backend, plain_step(n), {add_norm, matmul});
          return get(*backend, out);
        };
        const std::string what = std::to_string(d) + " wide, " + std::string(ridge::format(format).name);
        const Matrix all = run(n_all, false);
        expect_close(all, run(n_all, true), 0.01f, what);
        for (const int n : {1, 3, 6, 9, 17, 32, 40}) expect_same(run(n, false), all.slice(0, n), what + ", " + std::to_string(n) + " tokens");
        if (HasFailure()) return;
      }
}

// Matmuls in a row over one input take it from where the first has copied it, if they want it in the same form: not the next ones, of another form each time, nor the last, over another input.
TEST_F(Cuda, MatmulsInARowOverOneInputGiveTheBitsOfOneByOne) {
  Rng rng(16);
  const int d = 576;
  std::vector<std::unique_ptr<OwnedWeight>> stored;
  for (const auto& [how, rows] : {std::pair<Storage, int>{{FormatId::nvfp4}, 200}, {{FormatId::nvfp4}, 80}, {{FormatId::fp8_e4m3, Planes::fp8_tensor}, 80}, {{FormatId::q8_0}, 80}, {{FormatId::q4_0}, 200}, {{FormatId::bf16}, 80}, {{FormatId::nvfp4}, 80}})
    stored.push_back(stored_as(rng, how, rows, d));
  auto backend = make_cuda_backend({.graphs = false});
  std::vector<Weight> weights;
  for (const auto& w : stored) weights.push_back(backend->prepare(w->stored, {}));
  for (const int n : {3, 8, 12, 32, 40, 200}) {
    const Tensor x = put(*backend, random_matrix(rng, n, d)), other = put(*backend, random_matrix(rng, n, d));
    const auto run = [&](bool apart) {
      std::vector<Tensor> outs;
      std::vector<Op> ops;
      for (size_t i = 0; i <= weights.size(); ++i) {
        const Weight& w = weights[std::min(i, weights.size() - 1)];
        outs.push_back(backend->allocate_f32(n, w.rows));
        ops.push_back(Matmul{.out = {outs.back()}, .x = i < weights.size() ? x : other, .w = {&w}});
      }
      if (!apart) run_step(*backend, plain_step(n), ops);
      else run_apart(*backend, plain_step(n), ops);
      std::vector<Matrix> results;
      for (const Tensor& out : outs) results.push_back(get(*backend, out));
      return results;
    };
    const std::vector<Matrix> apart = run(true), together = run(false);
    for (size_t i = 0; i < apart.size(); ++i) expect_same(together[i], apart[i], std::to_string(n) + " tokens, matmul " + std::to_string(i));
  }
}

// Two layers of attention and MLP in one step, again and again as a graph, and op by op. Sequences of one row, of several and of many, over pages with a past.
TEST_F(Cuda, LayersInOneStepGiveTheBitsOfOneByOne) {
  Rng rng(15);
  struct Case { Storage how; FormatId kv; int head_dim, n_heads, n_kv_heads, window, page_size; bool norms; std::vector<SeqPlan> seqs; float softcap = 0; bool phased = false; };
  std::vector<Case> cases = {
      {{FormatId::nvfp4}, FormatId::bf16, 128, 8, 2, 0, 64, true, {{300, 1}}},
      {{FormatId::bf16}, FormatId::bf16, 128, 4, 4, 0, 16, false, {{127, 1}, {128, 1}, {5, 1}}},
      {{FormatId::q8_0}, FormatId::f16, 64, 6, 2, 150, 32, true, {{400, 3}, {0, 2}, {255, 1}}},
      {{FormatId::bf16}, FormatId::fp8_e4m3, 128, 8, 2, 0, 64, true, {{300, 1}, {127, 3}, {0, 2}}, 5.0f},
      {{FormatId::q8_0}, FormatId::fp8_e4m3, 64, 6, 2, 150, 32, true, {{401, 3}, {0, 2}, {255, 1}}},
      {{FormatId::nvfp4}, FormatId::fp8_e4m3, 128, 16, 8, 0, 64, false, {{2003, 1}}},
      {{FormatId::nvfp4}, FormatId::fp8_e4m3, 64, 4, 1, 0, 16, true, {{5001, 1}, {130, 6}}},
      {{FormatId::nvfp4}, FormatId::bf16, 128, 16, 8, 0, 64, true, {{300, 1}, {310, 1}, {5, 1}, {127, 1}, {400, 1}, {440, 1}, {200, 1}, {130, 1}}},
      {{FormatId::nvfp4}, FormatId::bf16, 64, 8, 8, 0, 64, true, {{300, 1}, {310, 1}, {5, 1}, {127, 1}, {400, 1}, {440, 1}, {200, 1}, {130, 1}, {77, 1}}},
      {{FormatId::nvfp4}, FormatId::fp8_e4m3, 128, 8, 2, 0, 64, true, {{100, 1}, {200, 1}, {301, 1}, {400, 1}, {502, 1}, {10, 1}, {20, 1}, {30, 1}, {43, 1}, {50, 1}}},
      {{FormatId::bf16}, FormatId::fp8_e4m3, 48, 4, 2, 0, 16, true, {{70, 1}, {3, 4}}},
      {{FormatId::q4_0}, FormatId::f16, 128, 32, 2, 2, 64, true, {{126, 4}, {1000, 1}}},
      {{FormatId::nvfp4}, FormatId::bf16, 64, 10, 5, 0, 16, false, {{126, 8}}},
      {{FormatId::fp8_e4m3, Planes::fp8_rows}, FormatId::bf16, 128, 16, 8, 0, 64, true, {{2000, 1}}},
      {{FormatId::fp8_e4m3, Planes::fp8_squares}, FormatId::bf16, 128, 4, 1, 300, 64, true, {{600, 1}, {3, 4}}},
      {{FormatId::nvfp4, Planes::nvfp4_planes}, FormatId::bf16, 128, 8, 2, 0, 64, true, {{100, 1}, {200, 1}, {300, 1}, {400, 1}, {500, 1}, {10, 1}, {20, 1}, {30, 1}, {40, 1}, {50, 1}}},
      {{FormatId::mxfp4, Planes::mxfp4_planes}, FormatId::bf16, 64, 10, 5, 0, 64, true, {{300, 1}}},
      {{FormatId::q4_1}, FormatId::bf16, 128, 8, 2, 0, 64, false, {{100, 1}, {5, 3}}},
      // Heads of 256: folded by a cluster, by a kernel of their own, and with several tiles a block.
      {{FormatId::nvfp4}, FormatId::bf16, 256, 8, 4, 0, 64, true, {{300, 1}}},
      {{FormatId::bf16}, FormatId::f16, 256, 4, 1, 150, 32, true, {{400, 3}, {0, 2}, {255, 1}}, 5.0f},
      {{FormatId::q8_0}, FormatId::fp8_e4m3, 256, 16, 8, 0, 64, true, {{2003, 1}}},
      {{FormatId::nvfp4}, FormatId::fp8_e4m3, 256, 8, 1, 0, 16, false, {{5001, 1}, {130, 4}}},
      {{FormatId::bf16}, FormatId::bf16, 256, 4, 2, 0, 64, true, {{6000, 2}}},
      // Prompts: more tokens than blocks stay for, so that each has several; with and without sequences of few rows among them.
      {{FormatId::bf16}, FormatId::bf16, 128, 8, 2, 0, 64, true, {{37, 1700}}},
      {{FormatId::nvfp4}, FormatId::f16, 64, 10, 5, 150, 16, false, {{0, 500}, {130, 450}}},
      {{FormatId::q8_0}, FormatId::bf16, 128, 4, 1, 0, 32, true, {{0, 450}}},
      {{FormatId::fp8_e4m3, Planes::fp8_rows}, FormatId::fp8_e4m3, 128, 8, 2, 0, 64, true, {{5, 450}}},
      {{FormatId::bf16}, FormatId::bf16, 128, 8, 2, 0, 64, true, {{0, 500}, {70, 3}}},
      {{FormatId::bf16}, FormatId::bf16, 256, 8, 4, 0, 64, true, {{37, 450}}},
      {{FormatId::nvfp4}, FormatId::f16, 256, 4, 1, 150, 16, false, {{0, 300}, {70, 3}, {130, 100}}},
      {{FormatId::bf16}, FormatId::fp8_e4m3, 256, 4, 2, 0, 32, true, {{5, 200}}},
      // Wide enough for matmuls as phases of one kernel, between attention that is folded by a cluster, by a kernel of its own, and with several tiles a block.
      {{FormatId::nvfp4}, FormatId::bf16, 128, 32, 8, 0, 64, true, {{300, 1}}, 0, true},
      {{FormatId::fp8_e4m3, Planes::fp8_rows}, FormatId::fp8_e4m3, 128, 32, 8, 0, 64, true, {{3000, 1}}, 0, true},
      {{FormatId::mxfp4}, FormatId::f16, 64, 64, 4, 0, 16, false, {{9000, 1}}, 5.0f, true},
  };
  // As many sequences as have an attention kernel of their own, which also rotates and stores where each has one row: at every place in a piece and in a tile, with tiles for
  // more than one round, and with a neighbour of two rows.
  const auto add_many = [&](Case c, int n, int by, int n_rows_of_one = 1) {
    for (int i = 0; i < n; ++i) c.seqs.push_back({by * i, i == 5 ? n_rows_of_one : 1});
    cases.push_back(c);
  };
  add_many({{FormatId::nvfp4}, FormatId::bf16, 128, 16, 8, 0, 64, true, {}}, 30, 37);
  add_many({{FormatId::bf16}, FormatId::bf16, 128, 16, 8, 0, 64, true, {}}, 16, 37);
  add_many({{FormatId::nvfp4}, FormatId::bf16, 128, 32, 8, 0, 64, true, {}}, 32, 17, 2);
  add_many({{FormatId::nvfp4}, FormatId::fp8_e4m3, 128, 32, 8, 0, 64, true, {}}, 32, 21);
  add_many({{FormatId::nvfp4}, FormatId::fp8_e4m3, 64, 5, 5, 130, 16, false, {}}, 31, 23);
  add_many({{FormatId::q8_0}, FormatId::f16, 64, 18, 6, 1, 32, true, {}}, 29, 19);
  add_many({{FormatId::q8_0}, FormatId::f16, 128, 64, 4, 200, 16, false, {}, 5.0f}, 32, 18);
  add_many({{FormatId::bf16}, FormatId::bf16, 64, 9, 3, 0, 16, true, {}}, 40, 13);
  add_many({{FormatId::nvfp4}, FormatId::bf16, 256, 16, 8, 0, 64, true, {}}, 30, 37);
  add_many({{FormatId::bf16}, FormatId::fp8_e4m3, 256, 16, 4, 130, 16, false, {}, 5.0f}, 32, 21);
  for (size_t number = 0; number < cases.size(); ++number) {
    const Case& c = cases[number];
    const PlannedStep plan = plan_step(c.seqs, {.page_size = c.page_size, .n_freqs = c.head_dim / 2, .seed = 5});
    const int d = c.phased ? 4096 : plan.step->n_tokens() < 65 ? 576 : 1152, d_ff = c.phased ? 8192 : 1216, d_q = c.n_heads * c.head_dim, d_kv = c.n_kv_heads * c.head_dim;      // 1152: whole pairs of units
    std::vector<SeqPlan> all_past;
    for (const SeqPlan& s : c.seqs) all_past.push_back({0, s.n_past + s.n_rows});
    const PlannedStep store = plan_step(all_past, {.page_size = c.page_size, .n_freqs = c.head_dim / 2, .seed = 5});
    const int n_tokens = plan.step->n_tokens();
    const auto weight = [&](int rows, int cols) { return stored_as(rng, c.how, rows, cols, 0.05f); };
    const auto wq = weight(d_q, d), wk = weight(d_kv, d), wv = weight(d_kv, d), wo = weight(d, d_q), wg = weight(d_ff, d), wu = weight(d_ff, d), wd = weight(d, d_ff);
    const Matrix x = random_matrix(rng, n_tokens, d), norm = random_matrix(rng, 1, d), qn = random_matrix(rng, 1, c.head_dim), kn = random_matrix(rng, 1, c.head_dim);
    const Matrix past_k = random_matrix(rng, store.step->n_tokens(), d_kv), past_v = random_matrix(rng, store.step->n_tokens(), d_kv);
    Matrix results[2][3];
    for (int way = 0; way < 2; ++way) {
      auto backend = make_cuda_backend({.graphs = way == 0});
      const auto prepared = [&](const auto& w) { return backend->prepare(w->stored, {}); };
      const Weight q = prepared(wq), k = prepared(wk), v = prepared(wv), o = prepared(wo), gate = prepared(wg), up = prepared(wu), down = prepared(wd);
      const Tensor tx = backend->allocate_f32(n_tokens, d), x0 = put(*backend, x), tn = put(*backend, norm), tqn = put(*backend, qn), tkn = put(*backend, kn);
      const auto made = [&](int cols) { return backend->allocate_f32(n_tokens, cols); };
      const Tensor pending = made(d), normed = made(d), tq = made(d_q), tk = made(d_kv), tv = made(d_kv), seen = made(d_q), tg = made(d_ff), tu = made(d_ff), angles = made(c.head_dim), zero = made(d);
      const KvPlane plane{c.n_kv_heads, c.head_dim, c.kv};
      const int64_t plane_bytes = c.page_size * entry_bytes(plane);
      KvRef kv[2];
      for (KvRef& layer : kv) {
        layer = {.base = backend->allocate((plan.n_pages + 3) * 2 * plane_bytes), .page_bytes = 2 * plane_bytes, .offsets = {0, plane_bytes, 0}, .planes = {plane, plane}, .page_size = c.page_size};
        const Tensor none = backend->allocate_f32(past_k.rows, d_q);
        run_step(*backend, *store.step, {RopeStore{.q = none, .k = put(*backend, past_k), .v = put(*backend, past_v), .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim,
                                                   .v_dim = c.head_dim, .kv = layer}});
      }
      std::vector<Op> ops = {AddNorm{.out = tx, .x = x0, .eps = 1e-5f}, RopeAngles{.angles = angles, .rope = 0, .n_freqs = c.head_dim / 2}};
      for (int layer = 0; layer < 2; ++layer) {
        ops.push_back(AddNorm{.out = normed, .x = tx, .pending = layer ? pending : zero, .weight = tn, .eps = 1e-5f});
        ops.push_back(Matmul{.out = {tq, tk, tv}, .x = normed, .w = {&q, &k, &v}});
        if (c.norms) ops.push_back(HeadNorm{.x = tq, .weight = tqn, .n_heads = c.n_heads, .eps = 1e-6f});
        if (c.norms) ops.push_back(HeadNorm{.x = tk, .weight = tkn, .n_heads = c.n_kv_heads, .eps = 1e-6f});
        ops.push_back(RopeStore{.q = tq, .k = tk, .v = tv, .angles = angles, .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .v_dim = c.head_dim, .n_rot = c.head_dim,
                                .kv = kv[layer]});
        ops.push_back(PagedAttention{.out = seen, .q = tq, .kv = kv[layer], .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .v_dim = c.head_dim,
                                     .scale = 1 / std::sqrt(float(c.head_dim)), .window = c.window, .softcap = c.softcap});
        ops.push_back(Matmul{.out = {pending}, .x = seen, .w = {&o}});
        ops.push_back(AddNorm{.out = normed, .x = tx, .pending = pending, .weight = tn, .eps = 1e-5f});
        ops.push_back(Matmul{.out = {tg, tu}, .x = normed, .w = {&gate, &up}});
        ops.push_back(Activate{.out = tg, .gate = tg, .up = tu, .kind = ActKind::silu});
        ops.push_back(Matmul{.out = {pending}, .x = tg, .w = {&down}});
      }
      const Tensor pages{kv[1].base, FormatId::u8, 1, plan.n_pages * 2 * plane_bytes, plan.n_pages * 2 * plane_bytes};
      for (int pass = 0; pass < (way == 0 ? 5 : 1); ++pass) {                  // plain, captured, replayed
        if (way == 0) run_step(*backend, *plan.step, ops);
        else run_apart(*backend, *plan.step, ops);
        std::vector<std::byte> bytes(static_cast<size_t>(pages.cols));
        backend->download(bytes.data(), pages);
        Matrix page_values{1, pages.cols, {}};
        for (const std::byte b : bytes) page_values.values.push_back(float(uint8_t(b)));
        const std::string what = "case " + std::to_string(number) + " pass " + std::to_string(pass);
        const Matrix now[3] = {get(*backend, tx), get(*backend, pending), page_values};
        for (int i = 0; i < 3; ++i) {
          if (pass == 0) results[way][i] = now[i];
          else expect_same(now[i], results[way][i], what + ", tensor " + std::to_string(i) + " of a replay");
        }
      }
    }
    for (int i = 0; i < 3; ++i) expect_same(results[0][i], results[1][i], "case " + std::to_string(number) + ", tensor " + std::to_string(i));
    if (HasFailure()) return;
  }
}

TEST_F(Cuda, HeadNormsRopeAndStoreInOneKernelGiveTheBitsOfOneByOne) {
  Rng rng(12);
  const int n_heads = 6, n_kv_heads = 2, head_dim = 80, n_tokens = 5;
  const PlannedStep plan = plan_step({{.n_past = 70, .n_rows = 3}, {.n_past = 0, .n_rows = 2}}, {.page_size = 16, .n_freqs = head_dim / 2});
  const Matrix q = random_matrix(rng, n_tokens, n_heads * head_dim), k = random_matrix(rng, n_tokens, n_kv_heads * head_dim), v = random_matrix(rng, n_tokens, n_kv_heads * head_dim),
               qn = random_matrix(rng, 1, head_dim), kn = random_matrix(rng, 1, n_kv_heads * head_dim);
  Matrix rotated[2], pages[2];
  for (int way = 0; way < 2; ++way) {
    auto backend = make_cuda_backend({.graphs = false});
    const Tensor tq = put(*backend, q), tk = put(*backend, k), tv = put(*backend, v), angles = backend->allocate_f32(n_tokens, head_dim);
    const int64_t plane = int64_t{4} * n_kv_heads * head_dim * 16;
    const Tensor memory = backend->allocate_f32(plan.n_pages, 2 * plane / 4);
    const KvRef kv{.base = memory.data, .page_bytes = memory.stride, .offsets = {0, plane, 0}, .planes = {{{n_kv_heads, head_dim, FormatId::f32}, {n_kv_heads, head_dim, FormatId::f32}, {}}},
                   .group = 0, .page_size = 16};
    const std::vector<Op> ops = {RopeAngles{.angles = angles, .rope = 0, .n_freqs = head_dim / 2}, HeadNorm{.x = tq, .weight = put(*backend, qn), .n_heads = n_heads, .eps = 1e-6f},
                                 HeadNorm{.x = tk, .weight = put(*backend, kn), .n_heads = n_kv_heads, .eps = 1e-6f, .weight_offset = 1.0f},
                                 RopeStore{.q = tq, .k = tk, .v = tv, .angles = angles, .n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_dim = head_dim, .v_dim = head_dim,
                                           .n_rot = head_dim, .kv = kv}};
    if (way == 0) run_step(*backend, *plan.step, ops);
    else run_apart(*backend, *plan.step, ops);
    rotated[way] = get(*backend, tq), pages[way] = get(*backend, memory);
  }
  expect_same(rotated[0], rotated[1], "q");
  expect_same(pages[0], pages[1], "pages");
}

TEST_F(Cuda, RotationAndStoreOfManyTokensGiveTheBitsOfFew) {
  Rng rng(16);
  const int n_heads = 6, n_kv_heads = 3, n_past = 58, n_tokens = 70, page_size = 64;        // pieces that reach into the second page have the pages of the whole
  for (const int head_dim : {64, 128})
    for (const FormatId kv_format : {FormatId::bf16, FormatId::f16, FormatId::f32, FormatId::fp8_e4m3})
      for (const bool norms : {false, true}) {
        const Matrix q = random_matrix(rng, n_tokens, n_heads * head_dim), k = random_matrix(rng, n_tokens, n_kv_heads * head_dim), v = random_matrix(rng, n_tokens, n_kv_heads * head_dim),
                     qn = random_matrix(rng, 1, head_dim), kn = random_matrix(rng, 1, n_kv_heads * head_dim);
        auto backend = make_cuda_backend({.graphs = false});
        const KvPlane plane{n_kv_heads, head_dim, kv_format};
        const int64_t bytes = page_size * entry_bytes(plane);
        const auto run = [&](const KvRef& kv, int first, int n) {
          const PlannedStep plan = plan_step({{n_past + first, n}}, {.page_size = page_size, .n_freqs = head_dim / 2, .seed = 5});
          const Tensor tq = put(*backend, q.slice(first, n)), tk = put(*backend, k.slice(first, n)), angles = backend->allocate_f32(n, head_dim);
          std::vector<Op> ops = {RopeAngles{.angles = angles, .rope = 0, .n_freqs = head_dim / 2}};
          if (norms) ops.push_back(HeadNorm{.x = tq, .weight = put(*backend, qn), .n_heads = n_heads, .eps = 1e-6f});
          if (norms) ops.push_back(HeadNorm{.x = tk, .weight = put(*backend, kn), .n_heads = n_kv_heads, .eps = 1e-6f, .weight_offset = 1.0f});
          ops.push_back(RopeStore{.q = tq, .k = tk, .v = put(*backend, v.slice(first, n)), .angles = angles, .n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_dim = head_dim,
                                  .v_dim = head_dim, .n_rot = head_dim, .kv = kv});
          run_step(*backend, *plan.step, ops);
          return get(*backend, tq);
        };
        const int n_pages = 2 + 3;
        KvRef kv[2];
        for (KvRef& way : kv) way = {.base = backend->allocate(n_pages * 2 * bytes), .page_bytes = 2 * bytes, .offsets = {0, bytes, 0}, .planes = {plane, plane}, .page_size = page_size};
        const auto pages = [&](const KvRef& way) {
          std::vector<std::byte> raw(static_cast<size_t>(n_pages * 2 * bytes));
          backend->download(raw.data(), {way.base, FormatId::u8, 1, int64_t(raw.size()), int64_t(raw.size())});
          return raw;
        };
        const std::string what = "heads of " + std::to_string(head_dim) + ", " + std::string(format(kv_format).name) + (norms ? ", normed" : "");
        const Matrix all = run(kv[0], 0, n_tokens);
        expect_same(run(kv[1], 0, 30), all.slice(0, 30), what + ", first rows");
        expect_same(run(kv[1], 30, 40), all.slice(30, 40), what + ", last rows");
        EXPECT_TRUE(pages(kv[0]) == pages(kv[1])) << what;
        if (HasFailure()) return;
      }
}

TEST_F(Cuda, AStepOfOtherOpsIsNotServedByAGraphOfItsShape) {
  Rng rng(13);
  const Matrix a = random_matrix(rng, 2, 64), b = random_matrix(rng, 2, 64);
  auto backend = make_cuda_backend({});
  const Tensor ta = put(*backend, a), tb = put(*backend, b);
  const Step step = plain_step(2);
  for (int i = 0; i < 4; ++i) run_step(*backend, step, {ScaleCap{.x = ta, .scale = 2.0f}});             // plain, captured, replayed twice
  run_step(*backend, step, {ScaleCap{.x = tb, .scale = 2.0f}});
  Matrix doubled = b;
  for (float& v : doubled.values) v *= 2;
  expect_same(get(*backend, tb), doubled, "other ops");
}

TEST_F(Cuda, PeaksAreTheFirstOfTheLargestAndSayWhenThereIsNone) {
  Rng rng(14);
  const int n_vocab = 10007;
  Matrix x = random_matrix(rng, 4, 64);
  const auto w = encode(random_matrix(rng, n_vocab, 64), FormatId::bf16);
  for (int k = 0; k < 64; ++k) x.row(2)[k] = 0;                              // all logits are equal
  x.row(3)[5] = NAN;
  auto backend = make_cuda_backend({});
  const Weight weight = backend->prepare(w->stored, {});
  const Tensor logits = backend->allocate_f32(4, n_vocab), tx = put(*backend, x);
  const Peak* peaks = backend->watch_peaks(logits);
  for (int pass = 0; pass < 3; ++pass) {
    run_step(*backend, plain_step(4), {Matmul{.out = {logits}, .x = tx, .w = {&weight}}});
    const Matrix got = get(*backend, logits);
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(peaks[r].token, std::max_element(got.row(r), got.row(r) + n_vocab) - got.row(r));
      EXPECT_EQ(peaks[r].logit, got.row(r)[peaks[r].token]);
    }
    EXPECT_EQ(peaks[2].token, 0);
    EXPECT_EQ(peaks[3].token, -1);
  }
}

// A layer's chain of ops: with many tokens neighbours share kernels and pass tiles of bf16 to each other, with few they do so in other ways. A row is the same.
TEST_F(Cuda, ALayersRowsAreTheSameHoweverItsOpsAreFused) {
  Rng rng(12);
  for (const Storage& how : kStorages)
    for (const ActKind kind : {ActKind::silu, ActKind::gelu_tanh, ActKind::relu})
      for (const auto& [d, d_ff] : {std::pair{192, 384}, {192, 200}, {512, 1024}, {512, 4608}, {192, 12288}, {1152, 6400}, {192, 15008}}) {
        // 200: not whole units; 512: whole groups of units; 12288: more than few tokens' shared memory; 6400, 15008: places of 192 rows, of 256, that end with the last of them
        if (d_ff % how.block() || (d_ff > 2000 && kind != ActKind::silu)) continue;
        const int n_all = d_ff > 2000 ? 200 : 400;
        const auto encoded = [&](int rows, int cols) { return stored_as(rng, how, rows, cols, 0.1f); };
        const auto wg = encoded(d_ff, d), wu = encoded(d_ff, d), wd = encoded(d, d_ff);
        const Matrix x = random_matrix(rng, n_all, d), pending = random_matrix(rng, n_all, d), weight = random_matrix(rng, 1, d), bias = random_matrix(rng, 1, d_ff);
        auto backend = make_cuda_backend({.graphs = false});
        const Weight gate = backend->prepare(wg->stored, {}), up = backend->prepare(wu->stored, {}), down = backend->prepare(wd->stored, {});
        const Tensor tw = put(*backend, weight), tb = put(*backend, bias);
        const auto run = [&](int first, int n, bool apart) {
          const Tensor tx = put(*backend, x.slice(first, n)), tp = put(*backend, pending.slice(first, n)), normed = backend->allocate_f32(n, d), g = backend->allocate_f32(n, d_ff),
                       u = backend->allocate_f32(n, d_ff), out = backend->allocate_f32(n, d);
          const std::vector<Op> ops = {AddNorm{.out = normed, .x = tx, .pending = tp, .weight = tw, .eps = 1e-5f}, Matmul{.out = {g, u}, .x = normed, .w = {&gate, &up}, .bias = {tb}},
                                       Activate{.out = g, .gate = g, .up = u, .kind = kind}, Matmul{.out = {out}, .x = g, .w = {&down}}};
          if (apart) run_apart(*backend, plain_step(n), ops);
          else run_step(*backend, plain_step(n), ops);
          return get(*backend, out);
        };
        const std::string what = how.name() + ", activation " + std::to_string(int(kind)) + ", " + std::to_string(d_ff) + " wide";
        const Matrix all = run(0, n_all, true);
        expect_same(run(0, n_all, false), all, what + ", all in one step");
        for (const int n : {1, 4, 5, 7, 8, 9, 30, 60, 70, 100, 193})
          if (100 + n <= n_all) expect_same(run(100, n, false), all.slice(100, n), what + ", " + std::to_string(n) + " rows");
        if (HasFailure()) return;
      }
}

// Matmuls of one token that follow each other, each over what the one before has made, go into one kernel, from the second kernel of a step on. Rows are those of matmuls one by one, among others.
TEST_F(Cuda, MatmulsInOneKernelGiveTheSameRows) {
  Rng rng(21);
  for (const Storage& how : kStorages) {
    const bool phased = how.format == FormatId::nvfp4 || how.format == FormatId::mxfp4 || how.format == FormatId::fp8_e4m3;
    // Rows for every team of warps; whole pieces of the input, and a last one that is not whole.
    for (const int d_ff : phased ? (how.format == FormatId::mxfp4 ? std::vector{8192} : std::vector{8192, 13312}) : std::vector{1536}) {
      const int d = phased ? 4096 : 512, n_layers = 4, n_all = 16;
      const auto wg = stored_as(rng, how, d_ff, d, 0.1f), wu = stored_as(rng, how, d_ff, d, 0.1f), wd = stored_as(rng, how, d, d_ff, 0.1f), wo = stored_as(rng, how, d, d, 0.1f);
      auto backend = make_cuda_backend({.graphs = false});
      const Weight gate = backend->prepare(wg->stored, {}), up = backend->prepare(wu->stored, {}), down = backend->prepare(wd->stored, {}), other = backend->prepare(wo->stored, {});
      const Matrix x = random_matrix(rng, n_all, d), pending = random_matrix(rng, n_all, d);
      const Tensor weight = put(*backend, random_matrix(rng, 1, d));
      const auto run = [&](int n, bool apart) {
        const Tensor normed = backend->allocate_f32(n, d), g = backend->allocate_f32(n, d_ff), u = backend->allocate_f32(n, d_ff), out = backend->allocate_f32(n, d);
        const Tensor tx = put(*backend, x.slice(0, n)), tp = put(*backend, pending.slice(0, n));
        std::vector<Op> ops;
        for (int layer = 0; layer < n_layers; ++layer) {
          ops.push_back(AddNorm{.out = normed, .x = tx, .pending = tp, .weight = weight, .eps = 1e-5f});
          ops.push_back(Matmul{.out = {g, u}, .x = normed, .w = {&gate, &up}});
          ops.push_back(Activate{.out = g, .gate = g, .up = u, .kind = ActKind::silu});
          ops.push_back(Matmul{.out = {tp}, .x = g, .w = {&down}});
          if (layer % 2 == 1) ops.push_back(ScaleCap{.x = out, .scale = 1.0f});            // ends a kernel
        }
        ops.push_back(AddNorm{.out = normed, .x = tx, .pending = tp, .weight = weight, .eps = 1e-5f});
        ops.push_back(Matmul{.out = {out}, .x = normed, .w = {&other}});
        if (apart) run_apart(*backend, plain_step(n), ops);
        else run_step(*backend, plain_step(n), ops);
        return get(*backend, out);
      };
      const Matrix all = run(n_all, true);
      for (const int n : {1, 3, 8}) {
        const std::string what = how.name() + ", " + std::to_string(d_ff) + " wide, " + std::to_string(n) + " rows";
        expect_same(run(n, true), all.slice(0, n), what + " one by one");
        for (int i = 0; i < 3; ++i) expect_same(run(n, false), all.slice(0, n), what);
      }
      if (HasFailure()) return;
    }
  }
}

// What comes through a relay is waited for until it is no NaN of one kind, which no arithmetic makes: numbers that are none pass like others.
TEST_F(Cuda, NumbersThatAreNoneDoNotHoldUpPhases) {
  Rng rng(23);
  const int d = 4096, d_ff = 8192;
  const Storage how{FormatId::nvfp4};
  const auto wg = stored_as(rng, how, d_ff, d, 0.1f), wu = stored_as(rng, how, d_ff, d, 0.1f), wd = stored_as(rng, how, d, d_ff, 0.1f);
  auto backend = make_cuda_backend({.graphs = false});
  const Weight gate = backend->prepare(wg->stored, {}), up = backend->prepare(wu->stored, {}), down = backend->prepare(wd->stored, {});
  Matrix x = random_matrix(rng, 1, d);
  x.row(0)[5] = std::bit_cast<float>(0xffffffffu), x.row(0)[6] = INFINITY, x.row(0)[7] = NAN;
  const Tensor tx = put(*backend, x), tp = put(*backend, random_matrix(rng, 1, d)), weight = put(*backend, random_matrix(rng, 1, d));
  const Tensor normed = backend->allocate_f32(1, d), g = backend->allocate_f32(1, d_ff), u = backend->allocate_f32(1, d_ff);
  std::vector<Op> ops;
  for (int layer = 0; layer < 4; ++layer) {
    ops.push_back(AddNorm{.out = normed, .x = tx, .pending = tp, .weight = weight, .eps = 1e-5f});
    ops.push_back(Matmul{.out = {g, u}, .x = normed, .w = {&gate, &up}});
    ops.push_back(Activate{.out = g, .gate = g, .up = u, .kind = ActKind::silu});
    ops.push_back(Matmul{.out = {tp}, .x = g, .w = {&down}});
    if (layer % 2 == 1) ops.push_back(ScaleCap{.x = normed, .scale = 1.0f});             // ends a kernel
  }
  run_step(*backend, plain_step(1), ops);
  for (const float v : get(*backend, tp).values) EXPECT_TRUE(std::isnan(v));
}

TEST_F(Cuda, TheLargestLogitsComeInTheirOrder) {
  Rng rng(17);
  auto backend = make_cuda_backend({});
  for (const int n_vocab : {100, 3000, 151936}) {
    Matrix x = random_matrix(rng, 6, n_vocab);
    for (float& v : std::span(x.row(1), size_t(n_vocab))) v = float(int(v));           // equals everywhere: too many for the list, where there are many tokens
    for (float& v : std::span(x.row(2), size_t(n_vocab))) v = float(int(v * 1e5f)) * 1e-5f;
    for (int i = 0; i < n_vocab; i += 2) x.row(3)[i] = -INFINITY;
    x.row(4)[n_vocab / 2] = NAN;
    x.row(5)[7] = INFINITY, x.row(5)[9] = -0.0f;
    const TopLogits* tops = backend->top_logits(put(*backend, x));
    ASSERT_NE(tops, nullptr);
    EXPECT_EQ(tops[4].n_found, -1);
    for (const int r : {0, 1, 2, 3, 5}) {
      if (r == 1 && n_vocab == 151936) {
        EXPECT_EQ(tops[r].n_found, -1);
        continue;
      }
      std::vector<int> order(static_cast<size_t>(n_vocab));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x.row(r)[a] > x.row(r)[b]; });
      ASSERT_EQ(tops[r].n_found, std::min(n_vocab, TopLogits::kMost)) << n_vocab << " tokens, row " << r;
      for (int i = 0; i < tops[r].n_found; ++i) {
        ASSERT_EQ(tops[r].top[i].token, order[size_t(i)]) << n_vocab << " tokens, row " << r << ", place " << i;
        ASSERT_EQ(tops[r].top[i].logit, x.row(r)[order[size_t(i)]]);
      }
    }
  }
}

TEST_F(Cuda, TablesAreReadAsTheyAreStored) {
  Rng rng(15);
  for (const Storage& how : {Storage{FormatId::f32}, Storage{FormatId::f16}, Storage{FormatId::q4_1}, Storage{FormatId::q8_0}, Storage{FormatId::q4_0}, Storage{FormatId::nvfp4},
                             Storage{FormatId::nvfp4, Planes::nvfp4_planes}, Storage{FormatId::mxfp4}, Storage{FormatId::mxfp4, Planes::mxfp4_planes}, Storage{FormatId::fp8_e4m3, Planes::fp8_tensor}, Storage{FormatId::fp8_e4m3, Planes::fp8_rows}}) {
    const auto w = stored_as(rng, how, 50, 320);
    if (how.format == FormatId::nvfp4) w->stored.scale = 0.3f;
    if (how.format == FormatId::mxfp4 && how.planes == Planes::blocks)
      for (int i = 0; i < 50 * 10; ++i) reinterpret_cast<BlockMxfp4*>(w->bytes.data())[i].e = uint8_t(i % 253);
    Matrix results[2];
    for (int which = 0; which < 2; ++which) {
      auto backend = which == 0 ? make_ref_backend() : make_cuda_backend({});
      const Weight table = backend->prepare_table(w->stored);
      const Tensor out = backend->allocate_f32(50, 320);
      run_step(*backend, plain_step(50), {Embed{.out = out, .table = &table, .scale = 1.5f}});
      results[which] = get(*backend, out);
    }
    expect_same(results[1], results[0], how.name());
  }
}

TEST_F(Cuda, DamagedFp8IsRefusedByName) {
  Rng rng(16);
  const auto w = stored_as(rng, {FormatId::fp8_e4m3, Planes::fp8_tensor}, 40, 96);
  w->bytes[1234] = std::byte{0xFF};
  auto backend = make_cuda_backend({});
  EXPECT_THROW(backend->prepare(w->stored, {}), Error);
}

// In a process of its own: afterwards the device does nothing more for whoever did it. Between two layers' matmuls an op writes to memory that is not there, behind one
// that marks how far the step has come; or the second matmul's weight is not there.
[[noreturn]] void run_into_a_fault(const CudaOptions& options, bool in_matmul) {
  try {
    Rng rng(17);
    auto backend = make_cuda_backend(options);
    Weight w[2];
    for (int layer = 0; layer < 2; ++layer) {
      const auto stored = stored_as(rng, {FormatId::bf16}, 64, 64);
      stored->stored.name = "model.layers." + std::to_string(6 + layer) + ".mlp.down_proj.weight";
      w[layer] = backend->prepare(stored->stored, {});
    }
    auto* const nowhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 20);
    if (in_matmul) w[1].packed.data = nowhere;
    const Tensor x = backend->allocate_f32(2, 64), y = backend->allocate_f32(2, 64), z = backend->allocate_f32(2, 64);
    std::vector<Op> ops = {Matmul{.out = {y}, .x = x, .w = {&w[0]}}, RopeStore{.q = y, .k = {}, .v = {}, .angles = {}, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .v_dim = 64, .kv = {}},
                           ScaleCap{.x = y, .scale = 2.0f}, Matmul{.out = {z}, .x = y, .w = {&w[1]}}};
    if (!in_matmul) std::get<ScaleCap>(ops[2]).x = {nowhere, FormatId::f32, 2, 64, 256};
    run_step(*backend, plain_step(2), ops);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(3);
  }
  std::_Exit(0);
}

TEST_F(Cuda, AFaultInAKernelBecomesAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_into_a_fault({}, false), testing::ExitedWithCode(3),
              "CUDA fault.*illegal memory access.*come to rope_store between \"model.layers.6.mlp.down_proj.weight\" and \"model.layers.7.mlp.down_proj.weight\".*CUDA_LAUNCH_BLOCKING=1");
}

TEST_F(Cuda, AFaultIsReportedWithItsOpAndLayer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_into_a_fault({.blocking = true}, false), testing::ExitedWithCode(3),
              "CUDA fault in scale_cap between \"model.layers.6.mlp.down_proj.weight\" and \"model.layers.7.mlp.down_proj.weight\" .layer 6 or 7.: .*illegal memory access");
  EXPECT_EXIT(run_into_a_fault({.blocking = true}, true), testing::ExitedWithCode(3), "CUDA fault in matmul \"model.layers.7.mlp.down_proj.weight\" .layer 7.: ");
}

TEST_F(Cuda, WaitingForEveryOpChangesNoBit) {
  Matrix results[2];
  for (const bool blocking : {false, true}) {
    Rng rng(18);
    const auto stored = stored_as(rng, {FormatId::q8_0}, 96, 64);
    auto backend = make_cuda_backend({.blocking = blocking});
    const Weight w = backend->prepare(stored->stored, {});
    const Tensor x = put(*backend, random_matrix(rng, 3, 64)), out = backend->allocate_f32(3, 96);
    for (int i = 0; i < 3; ++i) run_step(*backend, plain_step(3), {Matmul{.out = {out}, .x = x, .w = {&w}}});
    results[blocking] = get(*backend, out);
  }
  expect_same(results[1], results[0], "blocking");
}

}  // namespace
}  // namespace ridge::conformance
