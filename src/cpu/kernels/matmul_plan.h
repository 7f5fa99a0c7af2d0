// What the Matmul candidates share: the plan that every worker derives from an op, the sweep over tokens and panels, and the end of a tile. All of it is
// private to the file that includes it, since candidates are compiled with flags of their own.
#pragma once
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/matmul_input.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

// Calls fn with the format's type.
template <class Fn>
[[gnu::always_inline]] inline void with_format(const Weight& w, Fn&& fn) {
  switch (panel_of(w)) {
    case Panel::q8_0: return fn(PanelQ8_0{});
    case Panel::q4_0: return fn(PanelQ4_0{});
    case Panel::q4_pairs: return fn(PanelQ4Pairs{});
    case Panel::q4_1: return fn(PanelQ4_1{});
    case Panel::q6_k: return fn(PanelQ6K{});
    case Panel::nvfp4: return fn(PanelNvfp4{});
    case Panel::wide: return fn(PanelWide{});
    case Panel::bf16: return fn(PanelBf16{});
    case Panel::f16: return fn(PanelF16{});
    case Panel::f32: return fn(PanelF32{});
  }
}

// Planes of int8 in which the weight wants its tokens; 0: numbers in f32.
inline int planes_of(const Weight& w) { return w.arithmetic.x == FormatId::i8 ? 1 : w.arithmetic.x == FormatId::i16 ? 2 : 0; }
inline bool integer(const Weight& w) { return planes_of(w) > 0; }

// What all workers derive alike from an op: its weights, the kinds of sums they want, and the work units.
struct Plan {
  const Matmul& op;
  int n_weights = 0;
  int kind[3] = {};                          // of each weight: index into kinds
  SumKind kinds[3];
  int n_planes = 0;                          // most that a weight wants; 0: all are in f32 arithmetic
  int64_t first_unit[4] = {};                // units of weight i: [first_unit[i], first_unit[i + 1])
  int unit_panels;

  Plan(const Matmul& matmul, int panels_a_unit) : op(matmul), unit_panels(panels_a_unit) {
    int n_kinds = 0;
    for (; n_weights < 3 && op.w[n_weights]; ++n_weights) {
      const int i = n_weights;
      const Weight& w = *op.w[i];
      first_unit[i + 1] = first_unit[i] + (panels_of(w.rows) + unit_panels - 1) / unit_panels;
      if (!integer(w)) continue;
      if (planes_of(w) > n_planes) n_planes = planes_of(w);
      SumKind wanted;
      with_format(w, [&](auto format) {
        using Format = decltype(format);
        if constexpr (Coded<Format>) wanted = {Format::kBlock, Format::kOffset, kDotBegin, Format::kMin};
      });
      kind[i] = 0;
      while (kind[i] < n_kinds && kinds[kind[i]] != wanted) ++kind[i];
      if (kind[i] == n_kinds) kinds[n_kinds++] = wanted;
    }
  }

  IntInput input(const QuantizedTokens& x, int64_t token, int i) const { return x.input(token, kind[i], kinds[kind[i]].product, planes_of(*op.w[i])); }

  int64_t block() const { return kinds[0].block == 64 ? 64 : 32; }      // inputs that share a scale of a token's

  int64_t n_units() const { return first_unit[n_weights]; }

  // work(weight, first panel, last panel) for the panels of units [first, last).
  template <class Work>
  void for_panels(int64_t first, int64_t last, Work&& work) const {
    for (int i = 0; i < n_weights; ++i) {
      const int64_t a = first > first_unit[i] ? first : first_unit[i], b = last < first_unit[i + 1] ? last : first_unit[i + 1];
      if (a >= b) continue;
      const int64_t end = (b - first_unit[i]) * unit_panels, n = panels_of(op.w[i]->rows);
      work(i, (a - first_unit[i]) * unit_panels, end < n ? end : n);
    }
  }
};

// Stores P x T results: rows from token, columns from the panel's first output. Panels past the last output are not stored.
template <int P, int T>
[[gnu::always_inline]] inline void finish(F (&acc)[P][T], const Matmul& op, int i, int64_t panel, int64_t token) {
  const Weight& w = *op.w[i];
#pragma GCC unroll kUnroll
  for (int p = 0; p < P; ++p) {
    const int64_t column = (panel + p) * kPanelRows, left = w.rows - column;
    if (left <= 0) return;
    const int n = left < 16 ? static_cast<int>(left) : 16;
    F bias = zero();
    if (op.bias[i]) bias = load_n(op.bias[i].f32() + column, n);
#pragma GCC unroll kUnroll
    for (int t = 0; t < T; ++t) {
      F y = acc[p][t];
      if (w.scale != 1.0f) y = mul(y, set1(w.scale));
      if (op.bias[i]) y = add(y, bias);
      store_n(op.out[i].f32(token + t) + column, y, n);
    }
  }
}

// Runs of units: small enough that the workers end together, large enough that each reads a long stream.
inline int64_t chunk_of(int64_t n_units, int n_workers) {
  const int64_t chunk = n_units / (8 * n_workers);
  return chunk < 1 ? 1 : chunk > 16 ? 16 : chunk;
}

// What a kernel wants of the quantized tokens beside themselves: nothing.
struct NoneBeside {
  static int64_t token_bytes(const Plan&) { return 0; }
  void keep(const Plan&, std::byte*) {}
  void add(const QuantizedTokens&, int64_t, int64_t) const {}
};

// For any number of tokens: they are quantized once for the team, then panels(plan, i, first, last, x, token_first, token_last) is called for runs of panels of
// weight i, a multiple of kUnit of them except at the weight's end; x holds those tokens if the weight's arithmetic wants them. `beside` gets room for
// token_bytes() a token, whole groups of 16, and is told of runs of tokens that were quantized, each beginning at a multiple of 16. kLongRuns: the kernel does
// better on many panels at once.
template <int kUnit, bool kLongRuns, class Beside, class Panels>
void sweep_many(const Matmul& op, Lane& lane, int64_t own_bytes, Beside&& beside, Panels&& panels) {
  const Plan plan(op, kUnit);
  const QuantizedTokens x(lane.shared.data(), op.x.cols, plan.n_planes);
  int64_t n_run = op.x.rows;                                        // tokens that are quantized at a time: all of them, unless the team's scratch is small
  if (plan.n_planes > 0) {
    int64_t fit = static_cast<int64_t>(lane.shared.size()) / (x.stride() + beside.token_bytes(plan));
    if (fit >= 16) fit = fit / 16 * 16;
    if (n_run > fit) n_run = fit >= 48 ? fit / 48 * 48 : fit;       // whole tiles of any kernel
    if (n_run < 1 || static_cast<int64_t>(lane.own.size()) < own_bytes) __builtin_trap();
    beside.keep(plan, lane.shared.data() + (n_run + 15) / 16 * 16 * x.stride());
  }
  for (int64_t token = 0; token < op.x.rows; token += n_run) {
    const int64_t n = op.x.rows - token < n_run ? op.x.rows - token : n_run;
    if (plan.n_planes > 0) {
      if (token > 0) lane.barrier();                                // nobody reads the last run's tokens any more
      const auto [first, last] = lane.part(n, 16);
      for (int64_t t = first; t < last; ++t) x.quantize(t, op.x.f32(token + t), plan.kinds);
      beside.add(x, first, last);
      lane.barrier();
    }
    const auto work = [&](int64_t first, int64_t last) {
      plan.for_panels(first, last, [&](int i, int64_t a, int64_t b) { panels(plan, i, a, b, x, token, token + n); });
    };
    if (n == op.x.rows && kLongRuns) {
      lane.share_streams(plan.n_units(), 1, 4, work);
    } else if (n == op.x.rows) {
      lane.share(plan.n_units(), chunk_of(plan.n_units(), lane.n_workers), work);
    } else {
      const auto [first, last] = lane.part(plan.n_units());         // the shared counter serves one run only
      work(first, last);
    }
  }
}

}  // namespace
}  // namespace ridge::cpu::RIDGE_ISA_NS
