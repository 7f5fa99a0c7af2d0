// Latent attention and what belongs to it: heads with weights of their own, one key for all heads that is the value too, an index that selects, compressed entries,
// hyper-connections. A sequence runs in any chunks, alone or beside another one: `ref` within a tolerance, and every way on every ISA to the same bits.
#include "conformance/conformance.h"

namespace ridge::conformance {
namespace {

struct LatentCase {
  int n_heads = 4, head_dim = 40, v_dim = 32, window = 0;
  int top_k = 0, index_heads = 3, index_dim = 24;    // top_k 0: nothing is selected
  int every = 0;                                     // 0: no compressed entries
  bool overlap = false, sinks = false;
  FormatId format = FormatId::f32;
  int n_tokens = 100;
  uint32_t seed = 1;
};

std::string describe(const LatentCase& c) {
  return "heads " + std::to_string(c.n_heads) + " dims " + std::to_string(c.head_dim) + "/" + std::to_string(c.v_dim) + " window " + std::to_string(c.window) + " top " +
         std::to_string(c.top_k) + " every " + std::to_string(c.every) + (c.overlap ? " overlapping " : " ") + std::string(format(c.format).name) + " tokens " +
         std::to_string(c.n_tokens) + " seed " + std::to_string(c.seed);
}

// The KV and the inputs of a case on one backend, for two sequences: the second one is only there to be in the way.
class Rig {
 public:
  Rig(Backend& backend, const LatentCase& c, int page_size) : b_(backend), c_(c), page_size_(page_size), n_pages_((c.n_tokens + page_size - 1) / page_size) {
    Rng rng(c.seed);
    for (int s = 0; s < 2; ++s) {
      q_[s] = random_matrix(rng, c.n_tokens, c.n_heads * c.head_dim);
      keys_[s] = random_matrix(rng, c.n_tokens, c.head_dim);
      index_q_[s] = random_matrix(rng, c.n_tokens, c.index_heads * c.index_dim);
      index_keys_[s] = random_matrix(rng, c.n_tokens, c.index_dim);
      index_weights_[s] = random_matrix(rng, c.n_tokens, c.index_heads);
      inputs_[s] = random_matrix(rng, c.n_tokens, 2 * width(c.head_dim));
      index_inputs_[s] = random_matrix(rng, c.n_tokens, 2 * width(c.index_dim));
    }
    if (c.every > 0) {
      bias_ = put_dense(random_matrix(rng, c.every, width(c.head_dim)));
      index_bias_ = put_dense(random_matrix(rng, c.every, width(c.index_dim)));
    }
    norm_ = put(b_, random_matrix(rng, 1, c.head_dim));
    index_norm_ = put(b_, random_matrix(rng, 1, c.index_dim));
    sinks_ = put(b_, random_matrix(rng, 1, c.n_heads));
    kv_ = plane(c.head_dim, c.format, 1);
    index_kv_ = plane(c.index_dim, c.format, c.every > 0 ? c.every : 1);
    if (c.every > 0) {
      entries_ = plane(c.head_dim, c.format, c.every);
      inputs_kv_ = plane(2 * width(c.head_dim), FormatId::f32, 1);
      index_inputs_kv_ = plane(2 * width(c.index_dim), FormatId::f32, 1);
    }
  }

  // What the first sequence's rows give, all of it in chunks of these sizes; `company`: a row of the second one in each step.
  Matrix run(const std::vector<int>& chunks, bool company) {
    Matrix all{0, c_.n_heads * c_.v_dim, {}};
    int first = 0, n_step = 0;
    for (const int n : chunks) {
      const Matrix part = step(first, n, company && n_step < c_.n_tokens ? n_step : -1);
      all.values.insert(all.values.end(), part.values.begin(), part.values.end());
      all.rows += n;
      first += n;
      ++n_step;
    }
    return all;
  }

 private:
  int width(int head_dim) const { return c_.overlap ? 2 * head_dim : head_dim; }
  Tensor put_dense(const Matrix& m) { return view(b_.upload(m.values.data(), m.rows * m.cols).data, FormatId::f32, m.rows, m.cols); }
  KvRef plane(int head_dim, FormatId f, int every) {
    const int64_t bytes = ((page_size_ + every - 1) / every * row_bytes(f, head_dim) + 63) / 64 * 64;
    const KvRef kv{.base = b_.allocate(2 * n_pages_ * bytes), .page_bytes = bytes, .planes = {KvPlane{.n_heads = 1, .head_dim = head_dim, .format = f, .every = every}},
                   .page_size = page_size_};
    std::fill_n(reinterpret_cast<uint8_t*>(kv.base), 2 * n_pages_ * bytes, uint8_t{0xff});       // nothing may depend on what was never written
    return kv;
  }

  Matrix step(int first, int n, int other) {
    Step step({.max_tokens = n + 1, .max_seqs = 2, .max_logits = n + 1, .max_pages = 2 * n_pages_, .n_ropes = 1, .n_freqs = 4, .max_rope_rows = 1});
    step.clear();
    step.set_page_size(page_size_);
    const int rope_row = step.add_rope_row();
    for (int i = 0; i < 5; ++i) step.rope_freqs(0, rope_row)[i] = i < 4 ? std::pow(100.0f, -static_cast<float>(i) / 4) : 1.0f;
    const auto rows = [&](const Matrix (&m)[2]) {
      Matrix out = m[0].slice(first, n);
      if (other >= 0) out.values.insert(out.values.begin(), m[1].row(other), m[1].row(other) + m[1].cols), ++out.rows;
      return put(b_, out);
    };
    int row = 0;
    for (const int s : {1, 0}) {
      if (s == 1 && other < 0) continue;
      const int begin = s == 0 ? first : other, count = s == 0 ? n : 1;
      StepSeq seq{.slot = s, .first_row = row, .n_rows = count, .n_context = begin + count, .rope_row = rope_row, .first_page = {}};
      std::vector<int32_t> table;
      for (int p = 0; p < n_pages_; ++p) table.push_back(2 * (n_pages_ - 1 - p) + s);
      seq.first_page[0] = step.add_pages(table);
      const int index = step.add_seq(seq);
      for (int i = 0; i < count; ++i) step.add_token(0, begin + i, index, false);
      row += count;
    }

    const Tensor q = rows(q_), out = b_.allocate_f32(row, c_.n_heads * c_.v_dim);
    std::vector<Op> ops{RopeStore{.q = q, .k = rows(keys_), .n_heads = c_.n_heads, .n_kv_heads = 1, .head_dim = c_.head_dim, .v_dim = 0, .kv = kv_}};
    PagedAttention attention{.out = out, .q = q, .kv = kv_, .n_heads = c_.n_heads, .n_kv_heads = 1, .head_dim = c_.head_dim, .v_dim = c_.v_dim, .scale = 0.2f,
                             .window = c_.window, .sinks = c_.sinks ? sinks_ : Tensor{}, .value_in_key = true};
    const auto compress = [&](const Matrix (&m)[2], Tensor bias, Tensor norm, const KvRef& in, const KvRef& to, int head_dim) {
      ops.push_back(CompressKv{.x = rows(m), .bias = bias, .norm = norm, .inputs = in, .entries = to, .head_dim = head_dim, .rope = 0, .n_rot = 8, .eps = 1e-6f,
                               .overlap = c_.overlap});
    };
    if (c_.every > 0) {
      compress(inputs_, bias_, norm_, inputs_kv_, entries_, c_.head_dim);
      attention.entries = entries_;
    }
    if (c_.top_k > 0) {
      const Tensor index_q = rows(index_q_);
      if (c_.every > 0) compress(index_inputs_, index_bias_, index_norm_, index_inputs_kv_, index_kv_, c_.index_dim);
      else ops.push_back(RopeStore{.q = index_q, .k = rows(index_keys_), .n_heads = c_.index_heads, .n_kv_heads = 1, .head_dim = c_.index_dim, .v_dim = 0,
                                   .kv = index_kv_});
      attention.selected = b_.allocate_f32(row, c_.top_k);
      attention.selected.format = FormatId::i32;
      ops.push_back(IndexTopK{.selected = attention.selected, .q = index_q, .weights = rows(index_weights_), .kv = index_kv_, .n_heads = c_.index_heads,
                              .head_dim = c_.index_dim});
    }
    ops.push_back(attention);
    run_step(b_, step, ops);
    return get(b_, out).slice(row - n, n);
  }

  Backend& b_;
  LatentCase c_;
  int page_size_, n_pages_;
  Matrix q_[2], keys_[2], index_q_[2], index_keys_[2], index_weights_[2], inputs_[2], index_inputs_[2];
  Tensor bias_, index_bias_, norm_, index_norm_, sinks_;
  KvRef kv_, index_kv_, entries_, inputs_kv_, index_inputs_kv_;
};

LatentCase random_latent_case(Rng& rng) {
  LatentCase c{.n_heads = pick(rng, {1, 4, 16, 33, 70}), .v_dim = pick(rng, {16, 32, 21}), .seed = static_cast<uint32_t>(rng())};
  c.head_dim = c.v_dim + pick(rng, {8, 16, 0});
  c.format = std::array{FormatId::f32, FormatId::f16, FormatId::bf16}[rng() % 3];
  c.every = pick(rng, {0, 0, 4, 16, 5, 32});
  c.overlap = c.every > 0 && rng() % 2;
  c.top_k = pick(rng, {0, 1, 7, 70});
  c.window = c.every > 0 ? pick(rng, {1, 16, 40}) : c.top_k > 0 ? 0 : pick(rng, {0, 20});
  c.sinks = rng() % 2;
  c.n_tokens = between(rng, 1, 150);
  return c;
}

std::vector<int> cut(Rng& rng, int n) {
  std::vector<int> chunks;
  for (; n > 0; n -= chunks.back()) chunks.push_back(std::min(n, rng() % 2 ? 1 : between(rng, 1, 40)));
  return chunks;
}

TEST(LatentAttention, AgreesWithRefInAnyChunksBatchPagesIsaAndThreads) {
  Rng rng(21);
  const auto ref = make_ref_backend();
  for (int i = 0; i < 24; ++i) {
    const LatentCase c = random_latent_case(rng);
    const Matrix expected = Rig(*ref, c, 64).run({c.n_tokens}, false);
    expect_same(Rig(*ref, c, 16).run(cut(rng, c.n_tokens), true), expected, describe(c) + " on ref in chunks");
    Matrix first;
    for (const CpuCase& way : cpu_cases()) {
      const auto cpu = make_cpu(way);
      for (const bool chunked : {false, true}) {
        const Matrix got = Rig(*cpu, c, chunked ? 16 : 64).run(chunked ? cut(rng, c.n_tokens) : std::vector<int>{c.n_tokens}, chunked);
        const std::string what = describe(c) + " on " + cpu->name() + (chunked ? " in chunks" : "");
        expect_close(got, expected, 2e-5f, what);
        if (first.values.empty()) first = got;
        expect_same(got, first, what);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(LatentAttention, LongContextsCutAmongWorkersGiveTheSameBits) {
  for (const int top_k : {0, 1300}) {
    const LatentCase c{.n_heads = 3, .head_dim = 24, .v_dim = 16, .top_k = top_k, .n_tokens = 2400, .seed = 5};
    const std::vector<int> chunks{1100, 1200, 97, 1, 1, 1};
    const Matrix alone = Rig(*make_cpu({"", 1}), c, 64).run(chunks, false);
    for (const int n_threads : {2, 5}) expect_same(Rig(*make_cpu({"", n_threads}), c, 64).run(chunks, true), alone, std::to_string(n_threads) + " threads");
  }
}

TEST(HeadMatmul, AgreesWithRefAndCopiesWhatTheWeightsDoNotRead) {
  Rng rng(22);
  for (const FormatId f : {FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::q8_0, FormatId::nvfp4})
    for (const FormatId x : {FormatId::f32, FormatId::i8, FormatId::i16}) {
      if (format(f).block_elems == 1 && x != FormatId::f32) continue;
      const int n_heads = pick(rng, {1, 3, 8}), n_in = 64 * between(rng, 1, 3), n_out = pick(rng, {16, 40, 300}), rest = pick(rng, {0, 8, 5});
      const int n_rows = pick(rng, {1, 7, 40});
      std::vector<std::unique_ptr<OwnedWeight>> weights;
      for (int h = 0; h < n_heads; ++h) weights.push_back(encode(random_matrix(rng, n_out, n_in), f));
      const Matrix input = random_matrix(rng, n_rows, n_heads * (n_in + rest));
      const auto product = [&](Backend& b, const Matrix& rows) {
        std::vector<Weight> prepared;
        for (const auto& w : weights) prepared.push_back(b.prepare(w->stored, {.x = x}));
        std::vector<const Weight*> heads;
        for (const Weight& w : prepared) heads.push_back(&w);
        const PlannedStep planned = plan_step({{0, static_cast<int>(rows.rows)}}, {});
        const Tensor out = b.allocate_f32(rows.rows, n_heads * (n_out + rest));
        run_step(b, *planned.step, {HeadMatmul{.out = out, .x = put(b, rows), .w = heads.data(), .n_heads = n_heads}});
        return get(b, out);
      };
      const Matrix expected = product(*make_ref_backend(), input);
      Matrix first;
      for (const CpuCase& way : cpu_cases()) {
        const auto cpu = make_cpu(way);
        const std::string what = std::string(format(f).name) + " by " + std::string(format(x).name) + " on " + cpu->name();
        const Matrix got = product(*cpu, input);
        expect_close(got, expected, x == FormatId::i8 ? 2e-2f : 1e-4f, what);
        if (first.values.empty()) first = got;
        expect_same(got, first, what);
        expect_same(product(*cpu, input.slice(n_rows - 1, 1)), got.slice(n_rows - 1, 1), what + ", a row alone");
      }
    }
}

TEST(HyperConnections, AgreeWithRefAndMixDoublyStochastically) {
  Rng rng(23);
  for (const int n : {1, 2, 4}) {
    const int d_model = pick(rng, {48, 70}), n_rows = 9, n_factors = (2 + n) * n;
    const Matrix x = random_matrix(rng, n_rows, n * d_model), y = random_matrix(rng, n_rows, d_model), weights = random_matrix(rng, n_rows, n_factors),
                 scale = random_matrix(rng, 1, 3), base = random_matrix(rng, 1, n_factors);
    const PlannedStep planned = plan_step({{0, n_rows}}, {});
    struct Outcome { Matrix in, factors, streams; };
    const auto pass = [&](Backend& b) {
      const Tensor streams = put(b, x), factors = put(b, weights), in = b.allocate_f32(n_rows, d_model);
      run_step(b, *planned.step, {HyperEnter{.out = in, .x = streams, .weights = factors, .scale = put(b, scale), .base = put(b, base), .n = n, .iterations = 20,
                                             .eps = 1e-6f},
                                  HyperLeave{.x = streams, .y = put(b, y), .weights = factors, .n = n}});
      return Outcome{get(b, in), get(b, factors), get(b, streams)};
    };
    const Outcome expected = pass(*make_ref_backend());
    for (int64_t t = 0; t < n_rows; ++t)
      for (int k = 0; k < n; ++k) {
        float column = 0;
        for (int j = 0; j < n; ++j) column += expected.factors.row(t)[2 * n + j * n + k];
        EXPECT_NEAR(column, 1.0f, 1e-4f);
      }
    Outcome first;
    for (const CpuCase& way : cpu_cases()) {
      const auto cpu = make_cpu(way);
      const Outcome got = pass(*cpu);
      expect_close(got.in, expected.in, 1e-5f, "into a part");
      expect_close(got.factors, expected.factors, 1e-5f, "factors");
      expect_close(got.streams, expected.streams, 1e-5f, "streams");
      if (first.in.values.empty()) first = got;
      expect_same(got.in, first.in, "into a part on " + cpu->name());
      expect_same(got.streams, first.streams, "streams on " + cpu->name());
    }
  }
}

TEST(RopeStore, TurningBackUndoesTheRotation) {
  Rng rng(24);
  const Matrix x = random_matrix(rng, 12, 3 * 40), angles_of = random_matrix(rng, 12, 8);
  Matrix angles{12, 16, std::vector<float>(12 * 16)};
  for (int64_t t = 0; t < 12; ++t)
    for (int i = 0; i < 8; ++i) angles.row(t)[i] = std::cos(angles_of.row(t)[i]), angles.row(t)[8 + i] = std::sin(angles_of.row(t)[i]);
  const PlannedStep planned = plan_step({{0, 12}}, {});
  for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved})
    for (const CpuCase& way : cpu_cases()) {
      const auto cpu = make_cpu(way);
      const Tensor q = put(*cpu, x), turns = put(*cpu, angles);
      const KvRef kv{.planes = {KvPlane{.n_heads = 1, .head_dim = 40}}, .page_size = 64};
      std::vector<Op> ops;
      for (const bool back : {false, true})
        ops.push_back(RopeStore{.q = q, .angles = turns, .n_heads = 3, .n_kv_heads = 1, .head_dim = 40, .v_dim = 0, .n_rot = 16, .rot_first = 24, .style = style,
                                .kv = kv, .back = back});
      run_step(*cpu, *planned.step, ops);
      expect_close(get(*cpu, q), x, 1e-6f, "there and back on " + cpu->name());
    }
}

}  // namespace
}  // namespace ridge::conformance
