// Mixtures of experts: routing against ref for every gate; products row by row against Matmul with that expert's weight, bit for bit; and a mixture whose tokens do
// not feel who else is in the step.
#include "conformance/conformance.h"

#include <fmt/format.h>

#include "formats/mxfp4.h"

namespace ridge::conformance {
namespace {

std::vector<int32_t> ints(Backend& backend, const Tensor& t) {
  std::vector<int32_t> values(static_cast<size_t>(t.rows * t.cols));
  backend.download(values.data(), t);
  return values;
}

struct Routed { std::vector<int32_t> chosen, plan; Matrix weights; };

// The tensors of a route of n tokens on a backend.
MoeRoute on(Backend& backend, MoeRoute route, int64_t n, const Matrix& logits, const std::vector<float>& bias) {
  const auto i32 = [&](int64_t rows, int64_t cols) { return Tensor{backend.allocate(rows * cols * 4), FormatId::i32, rows, cols, cols * 4}; };
  route.chosen = i32(n, route.top_k);
  route.weights = backend.allocate_f32(n, route.top_k);
  route.plan = i32(1, route.n_experts + 1 + 2 * n * route.top_k);
  route.logits = put(backend, logits);
  if (!bias.empty()) route.bias = backend.upload(bias.data(), static_cast<int64_t>(bias.size()));
  return route;
}

Routed run_route(Backend& backend, const MoeRoute& route, const Matrix& logits, const std::vector<float>& bias) {
  const MoeRoute op = on(backend, route, logits.rows, logits, bias);
  run_step(backend, *plan_step({{0, static_cast<int>(logits.rows)}}, {}).step, {op});
  return {ints(backend, op.chosen), ints(backend, op.plan), get(backend, op.weights)};
}

TEST(MoeRoute, EveryGateChoosesAsRefDoes) {
  const MoeRoute routes[] = {
      {.n_experts = 16, .top_k = 4},
      {.n_experts = 16, .top_k = 4, .renormalize = true, .norm_least = 1e-12f},
      {.n_experts = 16, .top_k = 3, .gate_chosen = true},
      {.n_experts = 16, .top_k = 1, .gate = GateKind::sigmoid, .gate_chosen = true},
      {.n_experts = 16, .top_k = 5, .gate = GateKind::sigmoid, .n_groups = 4, .top_groups = 2, .group_best = 2, .renormalize = true, .norm_eps = 1e-20f, .scale = 2.5f},
      {.n_experts = 16, .top_k = 6, .n_groups = 8, .top_groups = 3, .scale = 16.0f},
      {.n_experts = 12, .n_idle = 4, .top_k = 4, .scale = 6.0f},
      {.n_experts = 16, .top_k = 4, .gate = GateKind::sqrt_softplus, .renormalize = true, .norm_eps = 1e-20f},
  };
  const auto ref = make_ref_backend();
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    Rng rng(7);
    for (const MoeRoute& route : routes)
      for (const int n : {1, 2, 33}) {
        const Matrix logits = random_matrix(rng, n, 16, 2.0f);
        const std::vector<float> bias = rng() % 2 == 0 ? std::vector<float>{} : random_matrix(rng, 1, 16, 0.2f).values;
        const Routed want = run_route(*ref, route, logits, bias), got = run_route(*cpu, route, logits, bias);
        EXPECT_EQ(got.chosen, want.chosen) << c.isa;
        EXPECT_EQ(got.plan, want.plan) << c.isa;
        expect_close(got.weights, want.weights, 1e-6f, c.isa);
      }
  }
}

TEST(MoeRoute, TheTokenChoosesItsExpertsWhereThereIsATable) {
  const std::vector<SeqPlan> seqs = {{0, 9}};
  const auto planned = plan_step(seqs, {.n_vocab = 20});
  Rng rng(3);
  std::vector<int32_t> table(20 * 2);
  for (int32_t& e : table) e = static_cast<int32_t>(rng() % 8);
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    MoeRoute op = on(*cpu, {.n_experts = 8, .top_k = 2}, 9, random_matrix(rng, 9, 8), {});
    op.hash = cpu->upload(reinterpret_cast<const float*>(table.data()), 40);
    op.hash = {op.hash.data, FormatId::i32, 20, 2, 8};
    run_step(*cpu, *planned.step, {op});
    const auto chosen = ints(*cpu, op.chosen);
    for (size_t t = 0; t < 9; ++t)
      for (size_t j = 0; j < 2; ++j) EXPECT_EQ(chosen[2 * t + j], table[2 * static_cast<size_t>(planned.step->tokens()[t]) + j]);
  }
}

// Experts with two matrices over one input and one back, all of one format.
struct Mixture {
  int n_experts = 6, top_k = 2;
  int64_t d_model = 0, d_ff = 0;
  Arithmetic arithmetic;
  std::vector<std::unique_ptr<OwnedWeight>> stored[3];
  Matrix bias;

  Mixture(Rng& rng, FormatId f, Arithmetic a, int64_t d_model, int64_t d_ff) : d_model(d_model), d_ff(d_ff), arithmetic(a), bias(random_matrix(rng, n_experts, d_ff)) {
    for (int e = 0; e < n_experts; ++e)
      for (int i = 0; i < 3; ++i) stored[i].push_back(encode(i < 2 ? random_matrix(rng, d_ff, d_model, 0.3f) : random_matrix(rng, d_model, d_ff, 0.3f), f));
    if (f == FormatId::mxfp4)                                               // one expert whose scales lie too far apart for the layout that the others get
      for (const auto& experts : stored) reinterpret_cast<BlockMxfp4*>(experts[1]->bytes.data())->e -= 40;
  }
};

struct Prepared {
  std::vector<Weight> weights[3];
  std::vector<const Weight*> pointers[3];
  Prepared(Backend& backend, const Mixture& m) {
    for (int i = 0; i < 3; ++i) {
      for (const auto& w : m.stored[i]) weights[i].push_back(backend.prepare(w->stored, m.arithmetic));
      for (const Weight& w : weights[i]) pointers[i].push_back(&w);
    }
  }
};

struct Outcome { Routed routed; Matrix up, gate, down, sum; };

Outcome run_mixture(Backend& backend, const Mixture& m, const Prepared& p, const Matrix& x, const Matrix& logits, bool weigh_inputs) {
  const int64_t n = x.rows, n_pairs = n * m.top_k;
  const MoeRoute route = on(backend, {.n_experts = m.n_experts, .top_k = m.top_k, .renormalize = true}, n, logits, {});
  const Tensor input = put(backend, x), bias = put(backend, m.bias), up = backend.allocate_f32(n_pairs, m.d_ff), gate = backend.allocate_f32(n_pairs, m.d_ff);
  const Tensor down = backend.allocate_f32(n_pairs, m.d_model), sum = backend.allocate_f32(n, m.d_model);
  run_step(backend, *plan_step({{0, static_cast<int>(n)}}, {}).step,
           {route,
            MoeMatmul{.out = {up, gate}, .x = input, .plan = route.plan, .w = {p.pointers[0].data(), p.pointers[1].data()}, .bias = {bias, {}}, .n_experts = m.n_experts,
                      .top_k = m.top_k, .gather = true, .weights = weigh_inputs ? route.weights : Tensor{}},
            MoeMatmul{.out = {down}, .x = gate, .plan = route.plan, .w = {p.pointers[2].data()}, .n_experts = m.n_experts, .top_k = m.top_k, .gather = false},
            MoeCombine{.out = sum, .y = down, .plan = route.plan, .chosen = route.chosen, .weights = route.weights, .x = input, .n_experts = m.n_experts, .top_k = m.top_k}});
  return {{ints(backend, route.chosen), ints(backend, route.plan), get(backend, route.weights)}, get(backend, up), get(backend, gate), get(backend, down), get(backend, sum)};
}

Matrix run_matmul(Backend& backend, const Weight& w, const Matrix& x, const float* bias) {
  Matmul op{.out = {backend.allocate_f32(x.rows, w.rows)}, .x = put(backend, x), .w = {&w}};
  if (bias) op.bias[0] = backend.upload(bias, w.rows);
  run_step(backend, *plan_step({{0, static_cast<int>(x.rows)}}, {}).step, {op});
  return get(backend, op.out[0]);
}

struct FormatCase { FormatId format; Arithmetic arithmetic; };
constexpr FormatCase kCases[] = {{FormatId::f32, kFloat}, {FormatId::bf16, kFloat}, {FormatId::q8_0, kInt8}, {FormatId::q4_1, kInt16}, {FormatId::nvfp4, kInt8}, {FormatId::mxfp4, kInt16},
                                 {FormatId::q4_0, kFloat}};

// Every grouped row against Matmul with its expert's weights.
void expect_rows_of_matmul(Backend& backend, const Mixture& m, const Prepared& p, Rng& rng, int n, bool weigh, const std::string& what) {
  const Matrix x = random_matrix(rng, n, m.d_model), logits = random_matrix(rng, n, m.n_experts);
  const Outcome got = run_mixture(backend, m, p, x, logits, weigh);
  for (int e = 0; e < m.n_experts; ++e) {
    const int32_t first = got.routed.plan[static_cast<size_t>(e)], n_rows = got.routed.plan[static_cast<size_t>(e) + 1] - first;
    if (n_rows == 0) continue;
    Matrix rows{n_rows, m.d_model, {}};
    for (int32_t r = first; r < first + n_rows; ++r) {
      const int32_t pair = got.routed.plan[static_cast<size_t>(m.n_experts + 1 + r)];
      for (int64_t i = 0; i < m.d_model; ++i) rows.values.push_back(x.row(pair / m.top_k)[i] * (weigh ? got.routed.weights.values[static_cast<size_t>(pair)] : 1.0f));
    }
    const auto weight = [&](int i) -> const Weight& { return p.weights[i][static_cast<size_t>(e)]; };
    expect_same(got.up.slice(first, n_rows), run_matmul(backend, weight(0), rows, m.bias.row(e)), what);
    expect_same(got.gate.slice(first, n_rows), run_matmul(backend, weight(1), rows, nullptr), what);
    expect_same(got.down.slice(first, n_rows), run_matmul(backend, weight(2), got.gate.slice(first, n_rows), nullptr), what);
  }
}

TEST(MoeMatmul, ARowHasTheBitsThatMatmulWithItsExpertGives) {
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    for (const auto& [f, arithmetic] : kCases)
      for (const bool weigh : {false, true}) {
        Rng rng(11);
        const Mixture m(rng, f, arithmetic, 128, 64);
        const Prepared p(*cpu, m);
        for (const int n : {1, 5, 60}) expect_rows_of_matmul(*cpu, m, p, rng, n, weigh, fmt::format("{} {} threads, {}, {} tokens", c.isa, c.n_threads, format(f).name, n));
      }
  }
}

TEST(MoeMatmul, RowsThatTheTeamsScratchCannotHoldHaveTheSameBits) {
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    Rng rng(23);
    Mixture m(rng, FormatId::q8_0, kInt16, 64, 2048);
    m.top_k = m.n_experts;                                                  // 420 rows of 7.8 KB in two planes, where there is room for 2.2 MB
    expect_rows_of_matmul(*cpu, m, Prepared(*cpu, m), rng, 70, false, c.isa);
  }
}

TEST(MoeMatmul, ATokenDoesNotFeelTheOthersOfItsStep) {
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    Rng rng(5);
    const Mixture m(rng, FormatId::nvfp4, kInt8, 128, 64);
    const Prepared p(*cpu, m);
    const Matrix x = random_matrix(rng, 40, m.d_model), logits = random_matrix(rng, 40, m.n_experts);
    const Matrix all = run_mixture(*cpu, m, p, x, logits, false).sum;
    for (const auto& [first, n] : {std::pair{0, 1}, {1, 7}, {8, 20}, {28, 12}})
      expect_same(run_mixture(*cpu, m, p, x.slice(first, n), logits.slice(first, n), false).sum, all.slice(first, n), c.isa);
  }
}

TEST(MoeCombine, AMixtureIsWithinAToleranceOfRef) {
  const auto ref = make_ref_backend();
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    Rng rng(9);
    const Mixture m(rng, FormatId::bf16, kFloat, 96, 50);
    const Matrix x = random_matrix(rng, 17, m.d_model), logits = random_matrix(rng, 17, m.n_experts);
    expect_close(run_mixture(*cpu, m, Prepared(*cpu, m), x, logits, false).sum, run_mixture(*ref, m, Prepared(*ref, m), x, logits, false).sum, 1e-5f, c.isa);
  }
}

TEST(MoeCombine, AnIdleExpertReturnsItsInput) {
  const auto check = [](Backend& backend) {
    const int32_t plan[] = {0, 1, /* pairs */ 0, 0, 0, 0, /* rows of pairs */ 0, -1, -1, -1}, chosen[] = {0, 1, 1, 1};      // one expert with weights, two tokens of two choices
    const auto upload = [&](const int32_t* values, int64_t rows, int64_t cols) {
      return Tensor{backend.upload(reinterpret_cast<const float*>(values), rows * cols).data, FormatId::i32, rows, cols, cols * 4};
    };
    const Matrix x{2, 3, {1, 2, 3, 4, 5, 6}}, y{4, 3, {10, 20, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0}}, weights{2, 2, {2, 3, 0.5f, 0.25f}};
    const MoeCombine op{.out = backend.allocate_f32(2, 3), .y = put(backend, y), .plan = upload(plan, 1, 10), .chosen = upload(chosen, 2, 2), .weights = put(backend, weights),
                        .x = put(backend, x), .n_experts = 1, .top_k = 2};
    run_step(backend, *plan_step({{0, 2}}, {}).step, {op});
    EXPECT_EQ(get(backend, op.out).values, (std::vector<float>{23, 46, 69, 3, 3.75f, 4.5f}));
  };
  check(*make_ref_backend());
  for (const CpuCase& c : cpu_cases()) check(*make_cpu(c));
}

TEST(MoeTraffic, OnlyTouchedExpertsCount) {
  const auto ref = make_ref_backend();
  Rng rng(2);
  const Mixture m(rng, FormatId::bf16, kFloat, 64, 32);
  const Prepared p(*ref, m);
  const auto planned = plan_step({{0, 3}}, {});
  Matrix logits{3, m.n_experts, std::vector<float>(static_cast<size_t>(3 * m.n_experts), 0.0f)};
  for (int t = 0; t < 3; ++t) logits.row(t)[1] = 5, logits.row(t)[t == 2 ? 4 : 3] = 4;                  // experts 1, 3 and 4
  const MoeRoute route = on(*ref, {.n_experts = m.n_experts, .top_k = 2}, 3, logits, {});
  run_step(*ref, *planned.step, {route});
  const MoeMatmul op{.out = {ref->allocate_f32(6, m.d_ff)}, .x = ref->allocate_f32(3, m.d_model), .plan = route.plan, .w = {p.pointers[0].data()}, .n_experts = m.n_experts, .top_k = 2,
                     .gather = true};
  EXPECT_EQ(traffic_of(op, *planned.step).weight_bytes, 3 * m.d_ff * m.d_model * 2);
  EXPECT_EQ(traffic_of(op, *planned.step).flops, 2.0 * 6 * 64 * 32);
}

}  // namespace
}  // namespace ridge::conformance
