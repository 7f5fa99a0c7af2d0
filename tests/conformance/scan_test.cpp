// The ops with a recurrent state: each CPU ISA against `ref`, and against itself for any number of threads and any way to cut a sequence into steps.
#include "conformance/conformance.h"

namespace ridge::conformance {
namespace {

// n_seqs sequences of equal length; pages of sequence s are s, n_seqs + s, 2 n_seqs + s, ...
class Scenario {
 public:
  Scenario(int n_seqs, int length, std::array<KvPlane, kMaxKvPlanes> planes) : n_seqs_(n_seqs), length_(length), planes_(planes) {}

  // Runs the op that build(backend, rows, kv) makes, rows(m) being the step's rows of a matrix of all sequences' tokens, and returns out for all of them.
  template <class Build>
  Matrix run(Backend& backend, std::vector<int> cuts, int64_t n_out, Build&& build) const {
    KvRef kv{.planes = planes_, .page_size = 64};
    for (size_t i = 0; i < planes_.size(); ++i) {
      kv.offsets[i] = kv.page_bytes;
      kv.page_bytes += (64 / planes_[i].every * entry_bytes(planes_[i]) + 63) / 64 * 64;
    }
    const int n_pages = (length_ + 63) / 64;
    kv.base = backend.allocate(kv.page_bytes * n_pages * n_seqs_);
    Matrix out{int64_t{n_seqs_} * length_, n_out, std::vector<float>(static_cast<size_t>(n_seqs_ * length_ * n_out))};
    cuts.push_back(length_);
    for (int first = 0, i = 0; first < length_; first = cuts[static_cast<size_t>(i++)]) {
      const int n = cuts[static_cast<size_t>(i)] - first;
      Step step({.max_tokens = n * n_seqs_, .max_seqs = n_seqs_, .max_logits = n_seqs_, .max_pages = n_pages * n_seqs_});
      step.clear();
      step.set_page_size(64);
      for (int s = 0; s < n_seqs_; ++s) {
        StepSeq seq{.slot = s, .first_row = s * n, .n_rows = n, .n_context = first + n, .rope_row = 0, .first_page = {}};
        std::vector<int32_t> table;
        // Of a recurrent group, pages before that of the newest position are given back, as the cache does it.
        for (int p = 0; p < n_pages; ++p) table.push_back(planes_[0].every > 1 && p < (first - 1) / 64 ? -1 : p * n_seqs_ + s);
        seq.first_page[0] = step.add_pages(table);
        step.add_seq(seq);
      }
      for (int s = 0; s < n_seqs_; ++s)
        for (int r = 0; r < n; ++r) step.add_token(0, first + r, s, r + 1 == n);
      const auto rows = [&](const Matrix& m) {
        Matrix part{int64_t{n} * n_seqs_, m.cols, {}};
        for (int s = 0; s < n_seqs_; ++s) part.values.insert(part.values.end(), m.row(int64_t{s} * length_ + first), m.row(int64_t{s} * length_ + first + n));
        return put(backend, part);
      };
      const Tensor result = backend.allocate_f32(int64_t{n} * n_seqs_, n_out);
      run_step(backend, step, {build(backend, rows, kv, result)});
      const Matrix got = get(backend, result);
      for (int s = 0; s < n_seqs_; ++s) std::copy_n(got.row(int64_t{s} * n), n * n_out, out.row(int64_t{s} * length_ + first));
    }
    return out;
  }

  template <class Build>
  void check(int64_t n_out, float tolerance, const std::string& what, Build&& build) const {
    const auto ref = make_ref_backend();
    const Matrix expected = run(*ref, {}, n_out, build);
    expect_same(run(*ref, {1, 2, 50, 64, 65}, n_out, build), expected, what + " on ref in pieces");
    Matrix first;
    for (const CpuCase& c : cpu_cases())
      for (const std::vector<int>& cuts : {std::vector<int>{}, {1, 2, 3, 40, 64}, {63, 65, 66, 128}}) {
        const auto cpu = make_cpu(c);
        const Matrix got = run(*cpu, cuts, n_out, build);
        expect_close(got, expected, tolerance, what + " on " + cpu->name());
        if (first.values.empty()) first = got;
        expect_same(got, first, what + " on " + cpu->name() + " and the first ISA in one step");
      }
  }

 private:
  int n_seqs_, length_;
  std::array<KvPlane, kMaxKvPlanes> planes_;
};

TEST(ShortConv, AgreesInAnyNumberOfTokensAtOnce) {
  Rng rng(21);
  for (const auto& [channels, n_taps, silu] : {std::tuple{40, 4, true}, {16, 3, false}, {300, 1, true}, {64, 7, false}}) {
    const Matrix x = random_matrix(rng, 2 * 140, channels), weight = random_matrix(rng, n_taps, channels), bias = random_matrix(rng, 1, channels);
    const Scenario scenario(2, 140, {KvPlane{1, channels}});
    scenario.check(channels, 1e-5f, "taps " + std::to_string(n_taps), [&, silu = silu](Backend& b, auto&& rows, const KvRef& kv, Tensor out) -> Op {
      return ShortConv{.out = out, .x = rows(x), .weight = put(b, weight), .bias = silu ? put(b, bias) : Tensor{}, .silu = silu, .kv = kv};
    });
  }
}

TEST(LinearScan, AgreesForEveryKindInAnyNumberOfTokensAtOnce) {
  Rng rng(22);
  struct Case { int n_heads, n_k_heads, dk, dv; ScanWrite write; bool gate, wide, skip; };
  for (const Case& c : {Case{20, 2, 16, 24, ScanWrite::stepped, true, false, true}, Case{4, 4, 16, 16, ScanWrite::plain, false, false, false},
                        Case{4, 2, 12, 24, ScanWrite::delta, true, false, false}, Case{3, 3, 20, 32, ScanWrite::delta, true, true, false}}) {
    const int64_t n = 2 * 140;
    const int n_decays = c.wide ? c.dk : 1;
    Matrix q = random_matrix(rng, n, c.n_k_heads * c.dk, 0.25f), k = random_matrix(rng, n, c.n_k_heads * c.dk, 0.25f);
    const Matrix v = random_matrix(rng, n, c.n_heads * c.dv), gate = random_matrix(rng, n, c.n_heads * n_decays), beta = random_matrix(rng, n, c.n_heads);
    Matrix rate = random_matrix(rng, 1, c.n_heads), skip = random_matrix(rng, 1, c.n_heads);
    for (float& r : rate.values) r = -0.5f * std::fabs(r);
    const Scenario scenario(2, 140, {KvPlane{.n_heads = c.n_heads, .head_dim = c.dk * c.dv, .every = 64}, KvPlane{c.n_k_heads, c.dk}, KvPlane{c.n_heads,
                                                                                                                                              c.dv}, KvPlane{c.n_heads, n_decays}});
    scenario.check(c.n_heads * c.dv, 2e-5f, "kind " + std::to_string(static_cast<int>(c.write)) + (c.wide ? " wide" : ""), [&](Backend& b, auto&& rows,
                                                                                                                               const KvRef& kv, Tensor out) -> Op {
      return LinearScan{.out = out, .q = rows(q), .k = rows(k), .v = rows(v), .gate = c.gate ? rows(gate) : Tensor{}, .rate = put(b, rate),
                        .beta = c.write == ScanWrite::delta ? rows(beta) : Tensor{}, .skip = c.skip ? put(b, skip) : Tensor{}, .n_heads = c.n_heads,
                            .n_k_heads = c.n_k_heads,
                        .dk = c.dk, .dv = c.dv, .write = c.write, .q_scale = 0.7f, .beta_scale = 1.3f, .dt_least = 0.1f, .dt_most = 1.5f, .kv = kv};
    });
  }
}

TEST(SelectiveScan, AgreesInAnyNumberOfTokensAtOnce) {
  Rng rng(23);
  for (const auto& [channels, n_state] : {std::pair{128, 16}, {200, 8}, {16, 3}}) {
    const Matrix x = random_matrix(rng, 2 * 140, channels), gate = random_matrix(rng, 2 * 140, channels), b = random_matrix(rng, 2 * 140, n_state),
        c = random_matrix(rng, 2 * 140, n_state);
    Matrix rate = random_matrix(rng, n_state, channels), skip = random_matrix(rng, 1, channels);
    for (float& r : rate.values) r = -std::fabs(r);
    const int state = channels * n_state;
    const Scenario scenario(2, 140, {KvPlane{.n_heads = 1, .head_dim = state, .every = 64}, KvPlane{.n_heads = 1, .head_dim = state + channels, .every = 64},
                                     KvPlane{2, channels},
                                     KvPlane{1, n_state}});
    scenario.check(channels, 1e-5f, "channels " + std::to_string(channels), [&](Backend& backend, auto&& rows, const KvRef& kv, Tensor out) -> Op {
      return SelectiveScan{.out = out, .x = rows(x), .gate = rows(gate), .b = rows(b), .c = rows(c), .rate = put(backend, rate), .skip = put(backend, skip),
                           .kv = kv};
    });
  }
}

}  // namespace
}  // namespace ridge::conformance
