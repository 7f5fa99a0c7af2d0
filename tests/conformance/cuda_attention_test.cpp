// Attention on CUDA's tensor cores: close to ref, and bit for bit that a row's result does not depend on what comes with it, on chunks, pages, or the kernel that it goes to.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/float_types.h"
#include "conformance/conformance.h"
#include "cuda/cuda_backend.h"

namespace ridge::conformance {
namespace {

class CudaAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

// Attention of sequences over shuffled pages whose other positions hold NaNs: nothing may depend on them.
struct FlashCase {
  int n_heads = 8, n_kv_heads = 2, head_dim = 128;
  FormatId kv = FormatId::bf16;
  int window = 0;
  float softcap = 0;
  bool sinks = false;
  int page_size = 64;
  std::vector<SeqPlan> seqs;
  int spread = 0;                                                            // values of a position and head are 2^(- spread / 2) to 2^(spread / 2) times as large
};

constexpr std::array kFlashFormats = {FormatId::f16, FormatId::bf16, FormatId::fp8_e4m3};

struct FlashInput { std::vector<Matrix> q, k, v; Matrix sinks; };            // per sequence, over its whole length

FlashInput flash_input(Rng& rng, const FlashCase& c) {
  FlashInput in{.q = {}, .k = {}, .v = {}, .sinks = random_matrix(rng, 1, c.n_heads)};
  for (const SeqPlan& s : c.seqs) {
    const int n = s.n_past + s.n_rows;
    in.q.push_back(random_matrix(rng, n, c.n_heads * c.head_dim));
    for (float& v : in.q.back().values) v = c.kv == FormatId::bf16 ? bf16_to_f32(f32_to_bf16(v)) : f16_to_f32(f32_to_f16(v));
    in.k.push_back(random_matrix(rng, n, c.n_kv_heads * c.head_dim));
    in.v.push_back(random_matrix(rng, n, c.n_kv_heads * c.head_dim));
    for (int64_t head = 0; c.spread > 0 && head < n * c.n_kv_heads; ++head) {
      const float size = std::ldexp(1.0f, between(rng, -c.spread / 2, c.spread / 2));
      for (int d = 0; d < c.head_dim; ++d) in.v.back().values[size_t(head * c.head_dim + d)] *= size;
    }
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
  const int64_t bytes = c.page_size * entry_bytes(plane);
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

TEST_F(CudaAttention, OnTensorCoresAgreesWithRefAndARowIsTheSameHoweverItComes) {
  Rng rng(10);
  for (int i = 0; i < 27; ++i) {
    FlashCase c{.n_kv_heads = pick(rng, {1, 2, 3}), .head_dim = std::array{128, 64, 256}[i % 3], .kv = kFlashFormats[size_t(i / 3 % 3)], .window = pick(rng, {0, 0, 1, 100, 200}),
                .softcap = rng() % 3 ? 0.0f : 5.0f, .sinks = rng() % 3 == 0, .page_size = pick(rng, {16, 32, 64})};
    c.n_heads = c.n_kv_heads * pick(rng, {1, 2, 3, 4, 7, 16});
    if (c.kv == FormatId::fp8_e4m3) c.spread = pick(rng, {0, 20});
    c.seqs = {{0, between(rng, 130, 400)}, {between(rng, 0, 300), 1}, {between(rng, 0, 200), between(rng, 16, 60)}, {between(rng, 0, 300), between(rng, 2, 15)}, {between(rng, 0, 40), 16}};
    const std::string what = "heads " + std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv_heads) + " dim " + std::to_string(c.head_dim) + " " + std::string(format(c.kv).name) +
                             " window " + std::to_string(c.window) + " cap " + std::to_string(c.softcap) + " pages of " + std::to_string(c.page_size) + " spread " + std::to_string(c.spread);
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

// Heads of 256 in every size of group: close to ref in a ragged batch, and a prompt in chunks, which go to kernels for few and for many rows, has the bits of the whole.
TEST_F(CudaAttention, HeadsOf256AgreeWithRefAndAPromptInChunksHasTheBitsOfTheWhole) {
  struct Form { int window; float softcap; bool sinks; };
  Rng rng(26);
  for (const int share : {1, 2, 4, 8})
    for (const FormatId kv : kFlashFormats)
      for (const Form& form : {Form{0, 0, false}, {90, 0, true}, {0, 5.0f, false}}) {
        FlashCase c{.n_heads = 2 * share, .n_kv_heads = 2, .head_dim = 256, .kv = kv, .window = form.window, .softcap = form.softcap, .sinks = form.sinks, .page_size = pick(rng, {16, 32, 64}),
                    .seqs = {{0, 290}, {300, 1}, {127, 5}, {40, 20}, {0, 1}}};
        const std::string what = "groups of " + std::to_string(share) + " " + std::string(format(kv).name) + " window " + std::to_string(c.window) + " cap " + std::to_string(c.softcap);
        const FlashInput in = flash_input(rng, c);
        auto backend = make_cuda_backend({.graphs = false}), ref = make_ref_backend();
        const Matrix all = flash(*backend, c, in);
        expect_close(all, flash(*ref, c, in), kv == FormatId::bf16 ? 8e-3f : 1.5e-3f, what);
        for (int first = 0; const int end : {1, 16, 32, 128, 129, 257, 290}) {
          FlashCase chunk = c;
          chunk.seqs = {{first, end - first}};
          const FlashInput own{.q = {in.q[0].slice(0, end)}, .k = {in.k[0].slice(0, end)}, .v = {in.v[0].slice(0, end)}, .sinks = in.sinks};
          expect_same(flash(*backend, chunk, own), all.slice(first, end - first), what + ", rows from " + std::to_string(first) + " to " + std::to_string(end));
          first = end;
        }
        if (HasFailure()) return;
      }
}

// Of values that differ by 2^20 from position to position, in a prompt: a row's error is measured by the sum of weights times magnitudes that it sees, whatever the other
// rows see, and the row is the same alone. Also where only a tile of little weight has values, so small that the factors of a fold are no exact numbers.
TEST_F(CudaAttention, InFp8ARowKeepsItsPrecisionAndBitsWhateverTheSizesOfValues) {
  struct Case { int head_dim, window, share; float first_keys, values; };
  for (const Case& way : {Case{128, 0, 4, 1, 1}, {64, 0, 1, 1, 1}, {128, 1, 2, 1, 1}, {128, 100, 4, 1, 1}, {64, 150, 7, 1, 1}, {128, 0, 4, 65, 0x1p-45f}, {64, 260, 2, 65, 0x1p-45f}, {256, 0, 2, 1, 1},
                          {256, 100, 8, 1, 1}, {256, 0, 4, 65, 0x1p-45f}}) {
    Rng rng(23);
    const int n = 300;
    FlashCase c{.n_heads = 2 * way.share, .n_kv_heads = 2, .head_dim = way.head_dim, .kv = FormatId::fp8_e4m3, .window = way.window, .page_size = 32, .seqs = {{0, n}}, .spread = 20};
    FlashInput in = flash_input(rng, c);
    for (float& v : in.v[0].values) v *= way.values;
    for (size_t i = 0; way.first_keys != 1 && i < size_t(128 * in.k[0].cols); ++i) in.k[0].values[i] *= way.first_keys, in.v[0].values[i] = 0;
    FlashInput magnitudes = in;
    for (float& v : magnitudes.v[0].values) v = std::fabs(v);
    const std::string what = "heads of " + std::to_string(c.head_dim) + " window " + std::to_string(c.window) + " first keys by " + std::to_string(way.first_keys);
    auto backend = make_cuda_backend({.graphs = false}), ref = make_ref_backend();
    const Matrix out = flash(*backend, c, in);
    if (way.first_keys == 1) {                                                 // large scores lose bits of their own
      const Matrix expected = flash(*ref, c, in), sums = flash(*ref, c, magnitudes);
      for (size_t i = 0; i < out.values.size(); ++i)
        ASSERT_LE(std::fabs(out.values[i] - expected.values[i]), 1.5e-3f * sums.values[i]) << what << ", row " << i / size_t(out.cols) << " column " << i % size_t(out.cols);
    }
    for (const int row : {0, 1, 64, 127, 128, 129, 200, 255, 256, 290, 299}) {
      FlashCase alone = c;
      alone.seqs = {{row, 1}};
      const FlashInput own{.q = {in.q[0].slice(0, row + 1)}, .k = {in.k[0].slice(0, row + 1)}, .v = {in.v[0].slice(0, row + 1)}, .sinks = in.sinks};
      expect_same(flash(*backend, alone, own), out.slice(row, 1), what + ", row " + std::to_string(row) + " alone");
    }
  }
}

// A key of damaged numbers must not be mistaken for one of large numbers: in fp8 no code says it, so the scale has to.
TEST_F(CudaAttention, InFp8WhoSeesAKeyOrAValueThatIsNoNumberGetsNone) {
  for (const int head_dim : {64, 128, 256})
    for (const bool in_value : {false, true})
      for (const int n_rows : {1, 50}) {
        if (in_value && n_rows > 1) continue;                                  // rows of a prompt share a tile of values, whatever they see of it
        Rng rng(19);
        FlashCase c{.n_heads = 4, .n_kv_heads = 2, .head_dim = head_dim, .kv = FormatId::fp8_e4m3, .page_size = 16, .seqs = {{50 - n_rows, n_rows}}};
        FlashInput in = flash_input(rng, c);
        (in_value ? in.v : in.k)[0].row(20)[head_dim + 3] = NAN;               // of the second KV head
        auto backend = make_cuda_backend({.graphs = false});
        const Matrix out = flash(*backend, c, in);
        for (int64_t r = 0; r < out.rows; ++r)
          for (int64_t i = 0; i < out.cols; ++i)
            ASSERT_EQ(std::isnan(out.row(r)[i]), 50 - n_rows + r >= 20 && i >= 2 * head_dim) << "heads of " << head_dim << ", row " << r << " of " << n_rows << ", column " << i;
      }
}

// Enough sequences for the kernel that takes a row's whole context in one block.
// Every fourth sequence alone.
void expect_rows_own_bits(const FlashCase& c, Rng& rng) {
  const std::string what = "heads " + std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv_heads) + " dim " + std::to_string(c.head_dim) + " " + std::string(format(c.kv).name) +
                           " window " + std::to_string(c.window) + " cap " + std::to_string(c.softcap) + " pages of " + std::to_string(c.page_size);
  const FlashInput in = flash_input(rng, c);
  auto backend = make_cuda_backend({.graphs = false});
  const Matrix all = flash(*backend, c, in);
  int64_t first = 0;
  for (size_t s = 0; s < c.seqs.size(); ++s) {
    FlashCase alone = c;
    alone.seqs = {c.seqs[s]};
    const FlashInput own{.q = {in.q[s]}, .k = {in.k[s]}, .v = {in.v[s]}, .sinks = in.sinks};
    if (s % 4 == 0) expect_same(flash(*backend, alone, own), all.slice(first, c.seqs[s].n_rows), what + ", sequence " + std::to_string(s) + " alone");
    first += c.seqs[s].n_rows;
  }
}

TEST_F(CudaAttention, OfManySequencesGivesEachRowItsOwnBits) {
  Rng rng(17);
  for (int i = 0; i < 18; ++i) {
    FlashCase c{.n_kv_heads = pick(rng, {2, 3}), .head_dim = i >= 12 ? 256 : i % 2 ? 64 : 128, .kv = kFlashFormats[size_t(i % 3)], .window = pick(rng, {0, 0, 1, 100, 200}),
                .softcap = rng() % 3 ? 0.0f : 5.0f, .sinks = rng() % 3 == 0, .page_size = pick(rng, {16, 32, 64})};
    c.n_heads = c.n_kv_heads * pick(rng, {1, 3, 4, 16});
    if (c.kv == FormatId::fp8_e4m3) c.spread = pick(rng, {0, 20});
    for (int s = 0; s < 60; ++s) c.seqs.push_back({s % 10 ? between(rng, 0, 300) : between(rng, 0, 1200), s % 7 ? 1 : between(rng, 2, 15)});
    expect_rows_own_bits(c, rng);
    if (HasFailure()) return;
  }
}

// Long contexts, which have a block a row where they are as long as each other, and are cut into tiles where they are not.
TEST_F(CudaAttention, OfManyLongSequencesGivesEachRowItsOwnBits) {
  Rng rng(18);
  for (int i = 0; i < 7; ++i) {
    FlashCase c{.n_heads = 6, .n_kv_heads = 3, .head_dim = i >= 4 ? 256 : i % 2 ? 64 : 128, .kv = kFlashFormats[size_t(i % 3)], .window = i == 1 || i == 5 ? 2100 : 0, .page_size = 32};
    for (int s = 0; s < 40; ++s) c.seqs.push_back({(i == 3 || i == 6) && s > 0 ? between(rng, 0, 200) : between(rng, 2100, 2500), s % 8 ? 1 : 2});
    expect_rows_own_bits(c, rng);
    if (HasFailure()) return;
  }
}

// Prompts behind a long past: a block's ring of tiles goes round several times, and the tiles are whole but for the first of a window and the last. Then prompts with enough
// heads that a block takes several.
TEST_F(CudaAttention, OfPromptsBehindALongPastGivesEachRowItsOwnBits) {
  Rng rng(20);
  for (int i = 0; i < 21; ++i) {
    FlashCase c{.n_heads = 8, .n_kv_heads = i % 4 == 3 ? 8 : 2, .head_dim = i >= 15 ? 256 : i / 3 % 2 ? 64 : 128, .kv = kFlashFormats[size_t(i % 3)], .window = i / 6 == 1 || i == 16 ? 1500 : 0,
                .softcap = i == 9 || i == 18 ? 5.0f : 0.0f, .page_size = pick(rng, {16, 32, 64}), .seqs = {{2300, 140}, {900, 77}}};
    if (i >= 12 && i < 15) c.n_heads = 128, c.n_kv_heads = 8, c.head_dim = 64, c.seqs = {{0, 700}, {37, 310}};
    if (i == 19) c.n_heads = 128, c.n_kv_heads = 8, c.seqs = {{0, 460}, {37, 60}};
    if (c.kv == FormatId::fp8_e4m3) c.spread = 20;
    const FlashInput in = flash_input(rng, c);
    auto backend = make_cuda_backend({.graphs = false});
    const Matrix all = flash(*backend, c, in);
    int64_t first = 0;
    for (size_t s = 0; s < c.seqs.size(); ++s) {
      const SeqPlan plan = c.seqs[s];
      for (const int n : {1, 9, 40}) {
        FlashCase alone = c;
        alone.seqs = {{plan.n_past + plan.n_rows - n, n}};
        const FlashInput own{.q = {in.q[s]}, .k = {in.k[s]}, .v = {in.v[s]}, .sinks = in.sinks};
        const std::string what = "case " + std::to_string(i) + ", last " + std::to_string(n) + " rows of sequence " + std::to_string(s);
        expect_same(flash(*backend, alone, own), all.slice(first + plan.n_rows - n, n), what);
      }
      first += plan.n_rows;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ridge::conformance
