// The forms of ops that only some dense families ask for, on CUDA: norms of heads with a mean or a bias or without weights, squared relu, temperature by position, queries
// that rotate alone (norms after rotation, KV of another layer), chunks, heads of any width. Each against ref, in the f32 check mode and as it serves; layers made of
// them give the same bits in one step, replayed as a graph and op by op.
#include <array>
#include <cmath>
#include <deque>

#include "base/error.h"
#include "conformance/conformance.h"
#include "cuda/cuda_backend.h"

namespace ridge::conformance {
namespace {

class CudaDense : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

struct OpAndOut { Op op; Tensor out; };

// What build(backend, first, n) makes of rows [first, first + n), on ref and on CUDA in both modes: close to each other, and a row alone is the same as among others.
class Rows {
 public:
  template <class Build>
  void check(int n_rows, float tolerance, const std::string& what, Build&& build) {
    const auto run = [&](Backend& backend, int first, int n) {
      const OpAndOut made = build(backend, first, n);
      EXPECT_TRUE(backend.supports(made.op)) << what;
      const PlannedStep plan = plan_step({{16380 + first, n}}, {.seed = 3});
      run_step(backend, *plan.step, {made.op});
      return get(backend, made.out);
    };
    const Matrix expected = run(*ref_, 0, n_rows);
    for (Backend* cuda : {checking_.get(), serving_.get()}) {
      const Matrix got = run(*cuda, 0, n_rows);
      expect_close(got, expected, tolerance, what + " on " + cuda->name());
      for (const int r : {0, n_rows - 1}) expect_same(run(*cuda, r, 1), got.slice(r, 1), what + ", row " + std::to_string(r) + " alone");
    }
  }

 private:
  std::unique_ptr<Backend> ref_ = make_ref_backend(), checking_ = make_cuda_backend({.check_f32 = true, .graphs = false}), serving_ = make_cuda_backend({.graphs = false});
};

TEST_F(CudaDense, NormsOfHeadsInEveryFormAgreeWithRef) {
  Rng rng(1);
  Rows rows;
  for (const int head_dim : {8, 12, 80, 128, 250})
    for (const NormKind kind : {NormKind::rms, NormKind::layer})
      for (const int weights : {0, 1, 2})                                     // none, one for all heads, one for each
        for (const int biases : {0, 1, 2}) {
          const int n_heads = between(rng, 2, 7), n_rows = pick(rng, {1, 5, 70});
          Matrix x = random_matrix(rng, n_rows, n_heads * head_dim);
          for (float& v : x.values) v += 2.0f;                               // a mean worth subtracting
          const Matrix w = random_matrix(rng, 1, weights == 1 ? head_dim : n_heads * head_dim), c = random_matrix(rng, 1, biases == 1 ? head_dim : n_heads * head_dim);
          rows.check(n_rows, 1e-5f, "heads of " + std::to_string(head_dim) + ", kind " + std::to_string(int(kind)) + ", weights " + std::to_string(weights) + ", biases " + std::to_string(biases),
                     [&](Backend& b, int first, int n) {
                       HeadNorm op{.x = put(b, x.slice(first, n)), .weight = {}, .n_heads = n_heads, .eps = 1e-5f, .weight_offset = 0.5f, .kind = kind};
                       if (weights) op.weight = put(b, w);
                       if (biases) op.bias = put(b, c);
                       return OpAndOut{op, op.x};
                     });
        }
}

TEST_F(CudaDense, SumsAndTemperatureByPositionAgreeWithRef) {
  Rng rng(2);
  Rows rows;
  for (const int cols : {1, 72, 1023})
    for (const int n_rows : {1, 70}) {
      const Matrix x = random_matrix(rng, n_rows, cols), y = random_matrix(rng, n_rows, cols);
      rows.check(n_rows, 1e-6f, "sum of " + std::to_string(cols), [&](Backend& b, int first, int n) {
        const AddScaled op{.x = put(b, x.slice(first, n)), .y = put(b, y.slice(first, n)), .scale = 0.7071f};
        return OpAndOut{op, op.x};
      });
      for (const auto& [floor_scale, offset] : {std::pair{16384, 0}, {16, 1}, {1, 7}})
        rows.check(n_rows, 1e-6f, "temperature every " + std::to_string(floor_scale), [&, floor_scale = floor_scale, offset = offset](Backend& b, int first, int n) {
          const ScaleByPosition op{.x = put(b, x.slice(first, n)), .factor = 0.3f, .floor_scale = floor_scale, .offset = offset};
          return OpAndOut{op, op.x};
        });
    }
}

TEST_F(CudaDense, ActivationsWithAndWithoutWhatTheyGateAgreeWithRef) {
  Rng rng(3);
  Rows rows;
  for (const ActKind kind : {ActKind::silu, ActKind::gelu_tanh, ActKind::gelu_erf, ActKind::relu, ActKind::relu2, ActKind::sigmoid})
    for (const bool gates : {false, true})
      for (const int where : {0, 1, 2}) {                                     // out apart, out is gate, out is up
        if (where == 2 && !gates) continue;
        const int n_rows = pick(rng, {1, 5, 70}), cols = pick(rng, {12, 80, 1023});
        const Matrix gate = random_matrix(rng, n_rows, cols, 3), up = random_matrix(rng, n_rows, cols);
        rows.check(n_rows, 2e-6f, "activation " + std::to_string(int(kind)) + (gates ? " gates" : "") + ", place " + std::to_string(where), [&](Backend& b, int first, int n) {
          Activate op{.gate = put(b, gate.slice(first, n)), .kind = kind};
          if (gates) op.up = put(b, up.slice(first, n));
          op.out = where == 0 ? b.allocate_f32(n, cols) : where == 1 ? op.gate : op.up;
          return OpAndOut{op, op.out};
        });
      }
}

TEST_F(CudaDense, OpsOfOtherFamiliesAreRefused) {
  auto backend = make_cuda_backend({});
  const Tensor x = backend->allocate_f32(2, 64), narrow = backend->allocate_f32(2, 4);
  for (const Op& op : {Op{MoeRoute{}}, Op{MoeMatmul{}}, Op{MoeCombine{}}, Op{HeadMatmul{}}, Op{IndexTopK{}}, Op{CompressKv{}}, Op{ShortConv{}}, Op{LinearScan{}}, Op{SelectiveScan{}},
                       Op{HyperEnter{}}, Op{HyperLeave{}}, Op{HeadNorm{.x = x, .weight = {}, .n_heads = 2, .eps = 1e-6f, .kind = NormKind::l2}},
                       Op{Activate{.out = x, .gate = x, .up = x, .kind = ActKind::gpt_oss, .limit = 7}}, Op{Activate{.out = x, .gate = narrow, .up = x, .kind = ActKind::sigmoid}},
                       Op{RopeStore{.q = x, .k = x, .v = {}, .angles = {}, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .v_dim = 64}},
                       Op{RopeStore{.q = x, .k = x, .v = x, .angles = x, .n_heads = 1, .n_kv_heads = 1, .head_dim = 128, .v_dim = 128, .n_rot = 64, .rot_first = 64}},
                       Op{PagedAttention{.out = x, .q = x, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .v_dim = 64, .scale = 1, .value_in_key = true}},
                       Op{PagedAttention{.out = x, .q = x, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .v_dim = 64, .scale = 1, .selected = x}},
                       Op{PagedAttention{.out = x, .q = x, .n_heads = 32, .n_kv_heads = 1, .head_dim = 64, .v_dim = 64, .scale = 1}},
                       Op{PagedAttention{.out = x, .q = x, .n_heads = 1, .n_kv_heads = 1, .head_dim = 1024, .v_dim = 1024, .scale = 1}}})
    EXPECT_FALSE(backend->supports(op)) << name_of(op);
}

// Only a number differs: a graph captured with the other one must not serve.
TEST_F(CudaDense, AGraphServesOnlyOpsWithTheSameNumbers) {
  Rng rng(4);
  const Matrix x = random_matrix(rng, 2, 64), y = random_matrix(rng, 2, 64);
  auto backend = make_cuda_backend({});
  const Tensor tx = put(*backend, x), ty = put(*backend, y), out = backend->allocate_f32(2, 64);
  const PlannedStep plan = plan_step({{0, 2}}, {.all_logits = true});
  const auto run = [&](float scale, float eps) {
    run_step(*backend, *plan.step, {GatherRows{.out = out, .x = tx, .pending = ty, .pending_scale = scale}, AddNorm{.out = out, .x = out, .eps = eps}});
    return get(*backend, out);
  };
  Matrix first;
  for (int i = 0; i < 4; ++i) first = run(0.5f, 1e-5f);                      // plain, captured, replayed twice
  const Matrix other_scale = run(2.0f, 1e-5f);
  auto fresh = make_ref_backend();
  for (const auto& [scale, eps, got] : {std::tuple{0.5f, 1e-5f, first}, {2.0f, 1e-5f, other_scale}, {2.0f, 1.0f, run(2.0f, 1.0f)}}) {
    const Tensor rx = put(*fresh, x), ry = put(*fresh, y), ro = fresh->allocate_f32(2, 64);
    run_step(*fresh, *plan.step, {GatherRows{.out = ro, .x = rx, .pending = ry, .pending_scale = scale}, AddNorm{.out = ro, .x = ro, .eps = eps}});
    expect_close(got, get(*fresh, ro), 2e-6f, "scale " + std::to_string(scale) + ", eps " + std::to_string(eps));
  }
}

struct Heads { int n_heads, n_kv_heads, head_dim, v_dim; };

KvRef make_pages(Backend& b, const Heads& h, FormatId format, int page_size, int n_pages) {
  const int64_t keys = page_size * row_bytes(format, h.n_kv_heads * h.head_dim), values = page_size * row_bytes(format, h.n_kv_heads * h.v_dim);
  const int64_t key_bytes = (keys + 255) / 256 * 256, page_bytes = key_bytes + (values + 255) / 256 * 256;
  return {.base = b.allocate(n_pages * page_bytes), .page_bytes = page_bytes, .offsets = {0, key_bytes, 0},
          .planes = {KvPlane{h.n_kv_heads, h.head_dim, format}, KvPlane{h.n_kv_heads, h.v_dim, format}}, .page_size = page_size};
}

struct AttentionForm {
  Heads heads;
  FormatId kv;
  int chunk = 0, window = 0;
  float softcap = 0;
  bool sinks = false;
};

// Rows [first, first + n) of one sequence; k and v are those of its positions from 0 on.
Matrix attend(Backend& b, const AttentionForm& f, int first, int n, int page_size, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& sinks) {
  const Heads& h = f.heads;
  const int n_known = first + n;
  const PlannedStep store = plan_step({{0, n_known}}, {.page_size = page_size, .seed = 5}), now = plan_step({{first, n}}, {.page_size = page_size, .seed = 5});
  const KvRef kv = make_pages(b, h, f.kv, page_size, store.n_pages);
  const RopeStore stored{.q = b.allocate_f32(n_known, h.n_heads * h.head_dim), .k = put(b, k.slice(0, n_known)), .v = put(b, v.slice(0, n_known)), .angles = {}, .n_heads = h.n_heads,
                         .n_kv_heads = h.n_kv_heads, .head_dim = h.head_dim, .v_dim = h.v_dim, .kv = kv};
  EXPECT_TRUE(b.supports(stored));
  run_step(b, *store.step, {stored});
  PagedAttention op{.out = b.allocate_f32(n, h.n_heads * h.v_dim), .q = put(b, q.slice(first, n)), .kv = kv, .n_heads = h.n_heads, .n_kv_heads = h.n_kv_heads, .head_dim = h.head_dim,
                    .v_dim = h.v_dim, .scale = 1 / std::sqrt(float(h.head_dim)), .window = f.window, .softcap = f.softcap, .chunk = f.chunk};
  if (f.sinks) op.sinks = put(b, sinks);
  EXPECT_TRUE(b.supports(op));
  run_step(b, *now.step, {op});
  return get(b, op.out);
}

// Heads of 64, 128 and 256 in 16 bits have chunks here, which the tensor-core kernels do not know.
TEST_F(CudaDense, AttentionOfEveryWidthAgreesWithRefAndARowIsTheSameHoweverItComes) {
  Rng rng(5);
  const std::vector<AttentionForm> forms = {
      {{6, 3, 8, 8}, FormatId::f32},
      {{6, 2, 20, 20}, FormatId::bf16, 0, 13},
      {{4, 2, 16, 16}, FormatId::f16, 0, 0, 50.0f},
      {{6, 3, 24, 24}, FormatId::bf16, 0, 200},
      {{4, 2, 80, 80}, FormatId::f16, 0, 0, 0, true},
      {{8, 2, 64, 64}, FormatId::bf16, 100},
      {{8, 1, 128, 128}, FormatId::f16, 300, 150},
      {{4, 4, 128, 128}, FormatId::f32, 256},
      {{8, 2, 192, 128}, FormatId::bf16, 0, 100, 0, true},
      {{4, 2, 16, 48}, FormatId::f32},
      {{8, 2, 256, 256}, FormatId::bf16, 100},
      {{16, 1, 256, 256}, FormatId::f32, 0, 300, 30.0f},
      {{4, 1, 512, 512}, FormatId::bf16},
      {{4, 2, 320, 320}, FormatId::f16, 70},
      {{8, 1, 512, 512}, FormatId::f32},
  };
  for (const AttentionForm& f : forms) {
    const Heads& h = f.heads;
    const int n_all = 600;
    const Matrix q = random_matrix(rng, n_all, h.n_heads * h.head_dim), k = random_matrix(rng, n_all, h.n_kv_heads * h.head_dim), v = random_matrix(rng, n_all, h.n_kv_heads * h.v_dim),
                 sinks = random_matrix(rng, 1, h.n_heads);
    const std::string what = "heads " + std::to_string(h.n_heads) + "/" + std::to_string(h.n_kv_heads) + " of " + std::to_string(h.head_dim) + " and " + std::to_string(h.v_dim) + ", " +
                             std::string(format(f.kv).name) + ", chunk " + std::to_string(f.chunk) + ", window " + std::to_string(f.window);
    auto ref = make_ref_backend(), cuda = make_cuda_backend({.graphs = false});
    const Matrix many = attend(*cuda, f, 500, 100, 64, q, k, v, sinks);
    expect_close(many, attend(*ref, f, 500, 100, 64, q, k, v, sinks), 1e-5f, what);
    for (const auto& [first, n] : {std::pair{500, 1}, {599, 1}, {510, 9}, {520, 30}}) {
      const int page_size = pick(rng, {16, 32, 64});
      expect_same(attend(*cuda, f, first, n, page_size, q, k, v, sinks), many.slice(first - 500, n), what + ", " + std::to_string(n) + " rows from " + std::to_string(first));
    }
    if (HasFailure()) return;
  }
}

// A layer as one of the families has it.
struct LayerForm {
  std::string name;
  Heads heads;
  int n_rot;
  RopeStyle style = RopeStyle::half;
  bool parallel = false, after_rope = false, v_norm = false, shares_kv = false, scaled = false, gated = true;
  NormKind norm = NormKind::rms;
  int qk_norm = 0;                           // 0 none; 1 rms with weights; 2 layer with weights and biases of every head; 3 rms without weights
  float temperature = 0;
  int window = 0, chunk = 0;
  ActKind act = ActKind::silu;
};

// Two layers over pages with a past: what they leave in the stream, and in what is pending.
class Layers {
 public:
  Layers(Backend& b, const LayerForm& f, FormatId kv_format, const std::vector<SeqPlan>& seqs, uint32_t seed) : b_(b) {
    Rng rng(seed);
    const Heads& h = f.heads;
    const int d = 192, d_ff = 320, d_q = h.n_heads * h.head_dim, d_k = h.n_kv_heads * h.head_dim, d_v = h.n_kv_heads * h.v_dim, d_seen = h.n_heads * h.v_dim;
    plan_ = plan_step(seqs, {.page_size = 16, .n_freqs = std::max(1, f.n_rot / 2), .seed = 5});
    std::vector<SeqPlan> whole;
    for (const SeqPlan& s : seqs) whole.push_back({0, s.n_past + s.n_rows});
    const PlannedStep store = plan_step(whole, {.page_size = 16, .n_freqs = std::max(1, f.n_rot / 2), .seed = 5});
    const int n = plan_.step->n_tokens(), n_past = store.step->n_tokens();
    const auto weight = [&](int rows, int cols) {
      stored_.push_back(encode(random_matrix(rng, rows, cols, 0.08f), FormatId::bf16));
      return &weights_.emplace_back(b.prepare(stored_.back()->stored, {}));
    };
    const auto vector = [&](int cols) { return put(b, random_matrix(rng, 1, cols)); };
    const auto made = [&](int cols) { return b.allocate_f32(n, cols); };
    const Tensor x0 = put(b, random_matrix(rng, n, d)), normed = made(d), q = made(d_q), k = made(d_k), v = made(d_v), gate = made(d_ff), up = made(d_ff), second = made(d), seen = made(d_seen);
    x = made(d), pending = made(d);
    const Tensor angles = f.n_rot > 0 ? made(f.n_rot) : Tensor{};
    ops = {AddNorm{.out = x, .x = x0, .eps = 1e-5f}};
    if (angles) ops.push_back(RopeAngles{.angles = angles, .rope = 0, .n_freqs = f.n_rot / 2});
    KvRef kv;
    for (int layer = 0; layer < 2; ++layer) {
      const bool own_kv = layer == 0 || !f.shares_kv;
      if (own_kv) {
        kv = make_pages(b, h, kv_format, 16, plan_.n_pages);
        run_step(b, *store.step, {RopeStore{.q = b.allocate_f32(n_past, d_q), .k = put(b, random_matrix(rng, n_past, d_k)), .v = put(b, random_matrix(rng, n_past, d_v)), .angles = {},
                                            .n_heads = h.n_heads, .n_kv_heads = h.n_kv_heads, .head_dim = h.head_dim, .v_dim = h.v_dim, .kv = kv}});
      }
      const auto norm = [&](const Tensor& added) {
        AddNorm op{.out = normed, .x = x, .pending = added, .weight = vector(d), .eps = 1e-5f, .kind = f.norm};
        if (f.norm == NormKind::layer) op.bias = vector(d);
        ops.push_back(op);
      };
      const auto head_norm = [&](const Tensor& of, int n_heads, int how) {
        HeadNorm op{.x = of, .weight = {}, .n_heads = n_heads, .eps = 1e-5f};
        if (how == 1) op.weight = vector(h.head_dim);
        if (how == 2) op.weight = vector(int(of.cols)), op.bias = vector(h.head_dim), op.kind = NormKind::layer;
        if (how > 0) ops.push_back(op);
      };
      const auto rope = [&](const Tensor& turned, int n_heads, const Tensor& keys, const Tensor& values, const Tensor& by) {
        ops.push_back(RopeStore{.q = turned, .k = keys, .v = values, .angles = by, .n_heads = n_heads, .n_kv_heads = h.n_kv_heads, .head_dim = h.head_dim, .v_dim = h.v_dim, .n_rot = f.n_rot,
                                .style = f.style, .kv = kv});
      };
      norm(layer > 0 && !f.scaled ? pending : Tensor{});
      if (own_kv) ops.push_back(Matmul{.out = {q, k, v}, .x = normed, .w = {weight(d_q, d), weight(d_k, d), weight(d_v, d)}});
      else ops.push_back(Matmul{.out = {q}, .x = normed, .w = {weight(d_q, d)}});
      if (own_kv && f.v_norm) head_norm(v, h.n_kv_heads, 3);
      if (f.after_rope) {
        rope(q, h.n_heads, {}, {}, angles);
        if (own_kv) rope(k, h.n_kv_heads, {}, {}, angles);
      }
      head_norm(q, h.n_heads, f.qk_norm);
      if (own_kv) head_norm(k, h.n_kv_heads, f.qk_norm);
      if (own_kv) rope(q, h.n_heads, k, v, f.after_rope ? Tensor{} : angles);
      else if (!f.after_rope && angles) rope(q, h.n_heads, {}, {}, angles);
      if (f.temperature != 0) ops.push_back(ScaleByPosition{.x = q, .factor = f.temperature, .floor_scale = 16});
      ops.push_back(PagedAttention{.out = seen, .q = q, .kv = kv, .n_heads = h.n_heads, .n_kv_heads = h.n_kv_heads, .head_dim = h.head_dim, .v_dim = h.v_dim,
                                   .scale = 1 / std::sqrt(float(h.head_dim)), .window = f.window, .chunk = f.chunk});
      ops.push_back(Matmul{.out = {pending}, .x = seen, .w = {weight(d, d_seen)}});
      if (!f.parallel) norm(pending);
      if (f.gated) ops.push_back(Matmul{.out = {gate, up}, .x = normed, .w = {weight(d_ff, d), weight(d_ff, d)}});
      else ops.push_back(Matmul{.out = {gate}, .x = normed, .w = {weight(d_ff, d)}, .bias = {vector(d_ff)}});
      ops.push_back(Activate{.out = gate, .gate = gate, .up = f.gated ? up : Tensor{}, .kind = f.act});
      ops.push_back(Matmul{.out = {f.parallel ? second : pending}, .x = gate, .w = {weight(d, d_ff)}});
      if (f.parallel) ops.push_back(AddScaled{.x = pending, .y = second});
      if (f.scaled) {
        ops.push_back(AddScaled{.x = x, .y = pending, .scale = 0.75f});
        ops.push_back(ScaleCap{.x = x, .scale = 0.875f});
      }
    }
    for (const Op& op : ops) EXPECT_TRUE(b.supports(op)) << f.name << ": " << name_of(op);
  }

  std::array<Matrix, 2> run(bool one_by_one) {
    if (one_by_one) run_apart(b_, *plan_.step, ops);
    else run_step(b_, *plan_.step, ops);
    return {get(b_, x), get(b_, pending)};
  }

  std::vector<Op> ops;
  Tensor x, pending;

 private:
  Backend& b_;
  PlannedStep plan_;
  std::vector<std::unique_ptr<OwnedWeight>> stored_;
  std::deque<Weight> weights_;
};

TEST_F(CudaDense, LayersOfEveryFormAgreeWithRefAndGiveTheSameBitsInOneStepAndOpByOp) {
  const std::vector<LayerForm> forms = {
      {.name = "squared relu, ungated", .heads = {6, 2, 20, 20}, .n_rot = 20, .gated = false, .act = ActKind::relu2},
      {.name = "parallel, layer norms", .heads = {4, 4, 16, 16}, .n_rot = 8, .parallel = true, .gated = false, .norm = NormKind::layer, .act = ActKind::gelu_erf},
      {.name = "parallel, interleaved, window", .heads = {8, 2, 64, 64}, .n_rot = 64, .style = RopeStyle::interleaved, .parallel = true, .norm = NormKind::layer, .window = 40},
      {.name = "norms after rotation", .heads = {6, 3, 16, 16}, .n_rot = 16, .after_rope = true, .qk_norm = 1},
      {.name = "norms after rotation, heads of 128", .heads = {8, 2, 128, 128}, .n_rot = 128, .after_rope = true, .qk_norm = 1},
      {.name = "layer norms of heads", .heads = {6, 3, 8, 8}, .n_rot = 4, .norm = NormKind::layer, .qk_norm = 2},
      {.name = "layer norms of heads of 64, parallel", .heads = {4, 2, 64, 64}, .n_rot = 16, .parallel = true, .norm = NormKind::layer, .qk_norm = 2},
      {.name = "norms of heads without weights", .heads = {4, 2, 128, 128}, .n_rot = 128, .qk_norm = 3},
      {.name = "shared KV, normed values, scaled stream", .heads = {6, 3, 24, 24}, .n_rot = 24, .v_norm = true, .shares_kv = true, .scaled = true, .qk_norm = 1, .window = 50, .act = ActKind::gelu_tanh},
      {.name = "shared KV, heads of 128", .heads = {4, 2, 128, 128}, .n_rot = 128, .v_norm = true, .shares_kv = true, .scaled = true, .qk_norm = 1},
      {.name = "shared KV, heads of 64, no rotation", .heads = {4, 2, 64, 64}, .n_rot = 0, .shares_kv = true},
      {.name = "shared KV, heads of 256", .heads = {4, 1, 256, 256}, .n_rot = 256, .v_norm = true, .shares_kv = true, .qk_norm = 1},
      {.name = "temperature", .heads = {8, 2, 64, 64}, .n_rot = 64, .temperature = 0.3f},
      {.name = "chunks", .heads = {8, 2, 128, 128}, .n_rot = 128, .qk_norm = 3, .chunk = 48},
      {.name = "values of another width", .heads = {4, 2, 48, 32}, .n_rot = 16, .qk_norm = 1},
  };
  uint32_t seed = 20;
  const std::vector<std::vector<SeqPlan>> steps = {{{40, 1}}, {{130, 3}, {0, 2}, {47, 1}}, {{20, 10}, {5, 20}}, {{100, 80}, {3, 1}}};
  for (const LayerForm& f : forms) {
    auto ref = make_ref_backend(), checking = make_cuda_backend({.check_f32 = true}), whole = make_cuda_backend({}), apart = make_cuda_backend({.graphs = false});
    for (const std::vector<SeqPlan>& seqs : steps) {
      ++seed;
      const std::string what = f.name + ", " + std::to_string(seqs[0].n_rows) + " rows first";
      const auto expected = Layers(*ref, f, FormatId::f32, seqs, seed).run(false), checked = Layers(*checking, f, FormatId::f32, seqs, seed).run(false);
      for (size_t i = 0; i < 2; ++i) expect_close(checked[i], expected[i], 1e-4f, what + ", check mode, tensor " + std::to_string(i));
      for (const FormatId kv : {FormatId::bf16, FormatId::f16}) {
        Layers together(*whole, f, kv, seqs, seed), alone(*apart, f, kv, seqs, seed);
        const auto bits = alone.run(true);
        for (size_t i = 0; i < 2; ++i) expect_close(bits[i], expected[i], 2.5e-2f, what + ", as it serves, tensor " + std::to_string(i));
        for (int pass = 0; pass < 4; ++pass) {                                // plain, captured, replayed
          const auto now = together.run(false);
          for (size_t i = 0; i < 2; ++i) expect_same(now[i], bits[i], what + ", pass " + std::to_string(pass) + ", tensor " + std::to_string(i));
        }
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ridge::conformance
