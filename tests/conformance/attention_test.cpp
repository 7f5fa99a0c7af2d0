// Attention over pages. What a page holds inside is each backend's own business, so KV is filled through RopeStore: a first step stores the past of every
// sequence, a second stores the new rows and attends.
#include <functional>
#include <limits>

#include "conformance/conformance.h"

namespace ridge::conformance {
namespace {

struct AttentionCase {
  int n_heads = 4, n_kv_heads = 2, head_dim = 64, v_dim = 64;
  FormatId k = FormatId::f32, v = FormatId::f32;
  int window = 0, chunk = 0;
  float softcap = 0;
  bool sinks = false;
  std::vector<SeqPlan> seqs;
  uint32_t seed = 1;
  int damaged = -1;                          // a position whose key is NaN, in all sequences
};

// Keys, values and queries of each sequence over its whole length: they depend on the case alone, not on how it is run.
struct Inputs { std::vector<Matrix> q, k, v; Matrix sinks; };
Inputs make_inputs(const AttentionCase& c) {
  Rng rng(c.seed);
  Inputs in;
  in.sinks = random_matrix(rng, 1, c.n_heads, 2);
  for (const SeqPlan& s : c.seqs) {
    const int n = s.n_past + s.n_rows;
    in.q.push_back(random_matrix(rng, n, c.n_heads * c.head_dim));
    in.k.push_back(random_matrix(rng, n, c.n_kv_heads * c.head_dim));
    in.v.push_back(random_matrix(rng, n, c.n_kv_heads * c.v_dim));
    if (c.damaged >= 0) std::fill_n(in.k.back().row(c.damaged), in.k.back().cols, std::numeric_limits<float>::quiet_NaN());
  }
  return in;
}

Matrix rows_of(const std::vector<Matrix>& all, const std::vector<SeqPlan>& plans, bool past) {
  Matrix m{0, all[0].cols, {}};
  for (size_t i = 0; i < plans.size(); ++i) {
    const Matrix part = past ? all[i].slice(0, plans[i].n_past) : all[i].slice(plans[i].n_past, plans[i].n_rows);
    m.values.insert(m.values.end(), part.values.begin(), part.values.end());
    m.rows += part.rows;
  }
  return m;
}

// The step as planned, but only with the rows of the past.
std::unique_ptr<Step> past_of(const Step& step) {
  StepLimits limits = step.limits();
  for (const StepSeq& s : step.seqs()) limits.max_tokens += s.n_context;
  auto past = std::make_unique<Step>(limits);
  past->clear();
  past->set_page_size(step.page_size());
  past->add_pages({step.pages(), static_cast<size_t>(step.n_pages())});
  int row = 0;
  for (StepSeq s : step.seqs()) {
    const int n = s.n_context - s.n_rows;
    s.first_row = row, s.n_rows = n, s.n_context = n;
    const int index = past->add_seq(s);
    for (int p = 0; p < n; ++p) past->add_token(0, p, index, false);
    row += n;
  }
  return past;
}

Matrix attend(Backend& b, const AttentionCase& c, int page_size) {
  const Inputs in = make_inputs(c);
  const PlannedStep planned = plan_step(c.seqs, {.page_size = page_size, .seed = c.seed});
  const KvPlane k{c.n_kv_heads, c.head_dim, c.k}, v{c.n_kv_heads, c.v_dim, c.v};
  const int64_t k_bytes = (page_size * entry_bytes(k) + 63) / 64 * 64, v_bytes = (page_size * entry_bytes(v) + 63) / 64 * 64;
  const KvRef kv{.base = b.allocate(planned.n_pages * (k_bytes + v_bytes)), .page_bytes = k_bytes + v_bytes, .offsets = {0, k_bytes, 0}, .planes = {k, v},
                 .page_size = page_size};
  // Memory that was never written holds NaNs: nothing may depend on it.
  std::fill_n(reinterpret_cast<uint8_t*>(kv.base), planned.n_pages * (k_bytes + v_bytes), uint8_t{0xff});
  const auto store = [&](const Step& step, bool past) {
    run_step(b, step, {RopeStore{.q = put(b, rows_of(in.q, c.seqs, past)), .k = put(b, rows_of(in.k, c.seqs, past)), .v = put(b, rows_of(in.v, c.seqs, past)),
                                 .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .v_dim = c.v_dim, .kv = kv}});
  };
  store(*past_of(*planned.step), true);
  store(*planned.step, false);
  PagedAttention op{.out = b.allocate_f32(planned.step->n_tokens(), c.n_heads * c.v_dim), .q = put(b, rows_of(in.q, c.seqs, false)), .kv = kv, .n_heads = c.n_heads,
                    .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .v_dim = c.v_dim, .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                    .window = c.window, .softcap = c.softcap, .chunk = c.chunk, .may_use_bf16 = true};
  if (c.sinks) op.sinks = put(b, in.sinks);
  run_step(b, *planned.step, {op});
  return get(b, op.out);
}

AttentionCase random_case(Rng& rng) {
  AttentionCase c{.seed = static_cast<uint32_t>(rng())};
  c.n_kv_heads = pick(rng, {1, 2, 3});
  c.n_heads = c.n_kv_heads * pick(rng, {1, 2, 3, 4, 7});
  c.head_dim = pick(rng, {16, 32, 64, 80, 96, 128, 256, 21});
  c.v_dim = rng() % 3 ? c.head_dim : pick(rng, {16, 64, 40, 13});
  c.k = std::array{FormatId::f32, FormatId::f16, FormatId::bf16, FormatId::fp8_e4m3}[rng() % 4];
  c.v = rng() % 4 ? c.k : FormatId::f16;
  c.window = pick(rng, {0, 0, 1, 7, 64, 100});
  c.chunk = pick(rng, {0, 0, 0, 5, 64, 90});
  c.softcap = rng() % 3 ? 0.0f : 5.0f;
  c.sinks = rng() % 3 == 0;
  const int n_seqs = pick(rng, {1, 1, 2, 5});
  for (int i = 0; i < n_seqs; ++i) c.seqs.push_back({rng() % 3 ? between(rng, 0, 150) : 0, rng() % 2 ? 1 : between(rng, 1, 70)});
  return c;
}

std::string describe(const AttentionCase& c) {
  std::string s = "heads " + std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv_heads) + " dims " + std::to_string(c.head_dim) + "/" + std::to_string(c.v_dim) + " " +
                  std::string(format(c.k).name) + " window " + std::to_string(c.window) + " chunk " + std::to_string(c.chunk) + " cap " + std::to_string(c.softcap) + " seqs";
  for (const SeqPlan& p : c.seqs) s += " " + std::to_string(p.n_past) + "+" + std::to_string(p.n_rows);
  return s;
}

// ISAs whose attention has the candidate `bf16`: AMX where this machine has it, and what computes the same.
std::vector<std::string> isas_with_bf16() {
  const std::vector<std::string> features = cpu_features();
  const auto has = [&](const char* name) { return std::find(features.begin(), features.end(), name) != features.end(); };
  const auto isas = available_isas();
  if (std::find(isas.begin(), isas.end(), "avx512") != isas.end() && has("amx_bf16") && has("avx512_bf16")) return {"scalar", "avx512"};
  return {"scalar"};
}

AttentionCase random_case_in_halves(Rng& rng) {
  AttentionCase c = random_case(rng);
  c.k = rng() % 3 ? FormatId::f16 : FormatId::bf16;
  c.v = rng() % 4 ? c.k : FormatId::f16;
  return c;
}

// Every case close to ref, and the same bits on all of them with pages of any size.
void expect_agreement(const std::vector<std::unique_ptr<Backend>>& cpus, int n_cases, float tolerance, const std::function<AttentionCase()>& next) {
  const auto ref = make_ref_backend();
  for (int i = 0; i < n_cases; ++i) {
    const AttentionCase c = next();
    const Matrix expected = attend(*ref, c, 32);
    Matrix first;
    for (const auto& cpu : cpus)
      for (const int page_size : {16, 32, 64}) {
        const Matrix got = attend(*cpu, c, page_size);
        const std::string what = describe(c) + " on " + cpu->name() + ", pages of " + std::to_string(page_size);
        expect_close(got, expected, tolerance, what);
        if (first.values.empty()) first = got;
        expect_same(got, first, what);
        if (testing::Test::HasFailure()) return;
      }
  }
}

TEST(PagedAttention, AgreesWithRefAndAmongIsasThreadsAndPageSizes) {
  Rng rng(11);
  std::vector<std::unique_ptr<Backend>> cpus;
  for (const CpuCase& c : cpu_cases()) cpus.push_back(make_cpu(c, "tiles64"));
  expect_agreement(cpus, 40, 1e-5f, [&] { return random_case(rng); });
}

// Queries, keys, values and weights are rounded to 8 bits, the sums are in f32.
TEST(PagedAttention, InBf16IsCloseToRefAndTheSameOnAmxAndItsStandIn) {
  Rng rng(18);
  std::vector<std::unique_ptr<Backend>> cpus;
  for (const std::string& isa : isas_with_bf16()) cpus.push_back(make_cpu({isa, 3}, "bf16"));
  expect_agreement(cpus, 16, 1e-2f, [&] { return random_case_in_halves(rng); });
}

void expect_a_row_is_the_same(Backend& cpu, AttentionCase whole, Rng& rng) {
  whole.seqs = {{between(rng, 0, 100), between(rng, 2, 60)}};
  const Matrix all = attend(cpu, whole, 32);
  const int total = whole.seqs[0].n_past + whole.seqs[0].n_rows;
  for (const int n_rows : {1, between(rng, 1, whole.seqs[0].n_rows)}) {
    AttentionCase tail = whole;
    tail.seqs = {{total - n_rows, n_rows}};
    expect_same(attend(cpu, tail, 64), all.slice(all.rows - n_rows, n_rows), describe(whole) + ", last " + std::to_string(n_rows));
  }
  AttentionCase batch = whole;
  batch.seqs.push_back({33, 5});
  batch.seqs.push_back({0, 17});
  expect_same(attend(cpu, batch, 16).slice(0, all.rows), all, describe(whole) + " in a batch");
}

TEST(PagedAttention, ARowIsTheSameAloneInAChunkAndInABatch) {
  Rng rng(12);
  const auto cpu = make_cpu({available_isas().front(), 3});
  for (int i = 0; i < 12; ++i) expect_a_row_is_the_same(*cpu, random_case(rng), rng);
}

TEST(PagedAttention, InBf16ARowIsTheSameAloneInAChunkAndInABatch) {
  for (const std::string& isa : isas_with_bf16()) {
    Rng rng(19);
    const auto cpu = make_cpu({isa, 3}, "bf16");
    for (int i = 0; i < 8; ++i) expect_a_row_is_the_same(*cpu, random_case_in_halves(rng), rng);
  }
}

// Heads and positions of very different sizes: each keeps three bits of mantissa below the largest of its own numbers, and what is zero or tiny is zero.
TEST(PagedAttention, InFp8EveryPositionAndHeadHasItsOwnScale) {
  const int n = 40, head_dim = 32;
  for (const bool on_ref : {true, false}) {
    const auto backend = on_ref ? make_ref_backend() : make_cpu({available_isas().front(), 2});
    const PlannedStep planned = plan_step({{0, n}}, {.page_size = 16});
    const KvPlane plane{2, head_dim, FormatId::fp8_e4m3};
    const int64_t bytes = 16 * entry_bytes(plane);
    const KvRef kv{.base = backend->allocate(planned.n_pages * 2 * bytes), .page_bytes = 2 * bytes, .offsets = {0, bytes, 0}, .planes = {plane, plane}, .page_size = 16};
    Rng rng(21);
    Matrix q{n, 2 * head_dim, std::vector<float>(size_t(n * 2 * head_dim), 0.0f)}, k = q, v = random_matrix(rng, n, 2 * head_dim);
    // Every token sees itself alone (a window of 1), so that the output is its own value as it was stored.
    for (int t = 0; t < n; ++t)
      for (int i = 0; i < 2 * head_dim; ++i) v.row(t)[i] *= std::pow(10.0f, float(t % 20 - 10) + (i < head_dim ? 0.0f : 3.0f));
    std::fill_n(v.row(7), 2 * head_dim, 0.0f);
    std::fill_n(v.row(8), 2 * head_dim, 1e-38f);
    const PagedAttention op{.out = backend->allocate_f32(n, 2 * head_dim), .q = put(*backend, q), .kv = kv, .n_heads = 2, .n_kv_heads = 2, .head_dim = head_dim, .v_dim = head_dim,
                            .scale = 1.0f, .window = 1};
    run_step(*backend, *planned.step, {RopeStore{.q = put(*backend, q), .k = put(*backend, k), .v = put(*backend, v), .n_heads = 2, .n_kv_heads = 2, .head_dim = head_dim, .v_dim = head_dim,
                                                 .kv = kv}});
    run_step(*backend, *planned.step, {op});
    const Matrix out = get(*backend, op.out);
    for (int t = 0; t < n; ++t)
      for (int h = 0; h < 2; ++h) {
        float largest = 0;
        for (int i = 0; i < head_dim; ++i) largest = std::max(largest, std::abs(v.row(t)[h * head_dim + i]));
        for (int i = 0; i < head_dim; ++i) {
          const float wanted = v.row(t)[h * head_dim + i], got = out.row(t)[h * head_dim + i];
          if (t == 7 || t == 8) ASSERT_EQ(got, 0.0f) << backend->name() << " row " << t;
          else ASSERT_LE(std::abs(got - wanted), std::max(std::abs(wanted) / 16, largest / 448 / 1024) * 1.00001f) << backend->name() << " row " << t << " number " << i;
        }
      }
  }
}

TEST(PagedAttention, InFp8WhoSeesAKeyThatIsNoNumberGetsNone) {
  const AttentionCase c{.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .v_dim = 64, .k = FormatId::fp8_e4m3, .v = FormatId::fp8_e4m3, .seqs = {{0, 50}}, .damaged = 20};
  for (const bool on_ref : {true, false}) {
    const auto backend = on_ref ? make_ref_backend() : make_cpu({available_isas().front(), 1});
    const Matrix out = attend(*backend, c, 16);
    for (int64_t r = 0; r < out.rows; ++r)
      for (int64_t i = 0; i < out.cols; ++i) ASSERT_EQ(std::isnan(out.row(r)[i]), r >= 20) << backend->name() << " row " << r << " column " << i;
  }
}

TEST(PagedAttention, LongContextsCutAmongWorkersGiveTheSameBits) {
  struct Way { std::string isa, kernel; float tolerance; };
  std::vector<Way> ways{{"", "tiles64", 1e-5f}};
  for (const std::string& isa : isas_with_bf16()) ways.push_back({isa, "bf16", 1e-2f});
  const auto ref = make_ref_backend();
  for (const int window : {0, 1500})
    for (const Way& way : ways) {
      const AttentionCase c{.n_heads = 4, .n_kv_heads = 1, .head_dim = 32, .v_dim = 32, .k = FormatId::f16, .v = FormatId::f16, .window = window,
                            .seqs = {{3210, 1}, {1023, 2}, {1100, 1}}, .seed = 13};
      const Matrix expected = attend(*ref, c, 64), alone = attend(*make_cpu({way.isa, 1}, way.kernel), c, 64);
      expect_close(alone, expected, way.tolerance, "long contexts");
      for (const int n_threads : {2, 3, 5}) expect_same(attend(*make_cpu({way.isa, n_threads}, way.kernel), c, 32), alone, std::to_string(n_threads) + " threads");
    }
}

// A token of damaged numbers must not be mistaken for one of large numbers.
TEST(PagedAttention, InBf16WhoSeesAKeyThatIsNoNumberGetsNone) {
  for (const std::string& isa : isas_with_bf16()) {
    const auto cpu = make_cpu({isa, 1}, "bf16");
    AttentionCase c{.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .v_dim = 64, .k = FormatId::f16, .v = FormatId::f16, .seqs = {{0, 50}}, .damaged = 20};
    const Matrix out = attend(*cpu, c, 16);
    for (int64_t r = 0; r < out.rows; ++r)
      for (int64_t i = 0; i < out.cols; ++i) ASSERT_EQ(std::isnan(out.row(r)[i]), r >= 20) << isa << " row " << r << " column " << i;
  }
}

// With few workers a unit of work is several blocks of queries that share a converted tile of keys and values, with many it is one.
TEST(PagedAttention, BlocksThatShareATileGiveTheBitsOfSingleOnes) {
  const auto ref = make_ref_backend();
  for (const int window : {0, 70})
    for (const int group : {2, 3}) {
      const AttentionCase c{.n_heads = 4 * group, .n_kv_heads = 4, .head_dim = 32, .v_dim = 48, .k = FormatId::f32, .v = FormatId::bf16, .window = window,
                            .seqs = {{37, 210}, {0, 3}}, .seed = 17};
      const Matrix expected = attend(*ref, c, 64);
      for (const std::string& isa : available_isas()) {
        const Matrix shared = attend(*make_cpu({isa, 1}), c, 64);
        expect_close(shared, expected, 1e-5f, isa);
        expect_same(attend(*make_cpu({isa, 16}), c, 32), shared, isa);
      }
    }
}

// Pages that no query sees any more are given back; their entries are -1.
TEST(PagedAttention, NeverTouchesPagesThatFellOutOfTheWindow) {
  const auto cpu = make_cpu({"", 2});
  const KvPlane plane{1, 16, FormatId::f32};
  const int64_t plane_bytes = 16 * 16 * 4;
  Step step({.max_tokens = 2, .max_seqs = 1, .max_logits = 2, .max_pages = 10});
  step.clear();
  step.set_page_size(16);
  StepSeq seq{.slot = 0, .first_row = 0, .n_rows = 2, .n_context = 150, .rope_row = 0, .first_page = {}};
  seq.first_page[0] = step.add_pages(std::array<int32_t, 10>{-1, -1, -1, -1, -1, -1, -1, -1, 1, 0});
  step.add_seq(seq);
  step.add_token(0, 148, 0, true);
  step.add_token(0, 149, 0, true);
  Rng rng(14);
  const KvRef kv{.base = cpu->allocate(4 * plane_bytes), .page_bytes = 2 * plane_bytes, .offsets = {0, plane_bytes, 0}, .planes = {plane, plane}, .page_size = 16};
  const Matrix v = random_matrix(rng, 2, 16);
  const Tensor q = put(*cpu, random_matrix(rng, 2, 16)), k = put(*cpu, random_matrix(rng, 2, 16)), out = cpu->allocate_f32(2, 16);
  run_step(*cpu, step,
           {RopeStore{.q = q, .k = k, .v = put(*cpu, v), .n_heads = 1, .n_kv_heads = 1, .head_dim = 16, .v_dim = 16, .kv = kv},
            PagedAttention{.out = out, .q = q, .kv = kv, .n_heads = 1, .n_kv_heads = 1, .head_dim = 16, .v_dim = 16, .scale = 1, .window = 1}});
  expect_same(get(*cpu, out), v, "a window of one position sees its own value");
}

}  // namespace
}  // namespace ridge::conformance
