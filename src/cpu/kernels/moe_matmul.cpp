// MoeMatmul: the panels of every touched expert are one row of work units that the workers draw from, so each of them is read once per step. The tiles are
// Matmul's (matmul_panels), so a row has the bits that Matmul with that expert's weight gives.
//
// Tokens are quantized once: up to 8 by every worker for itself, more into the team's scratch; an expert's rows are then copied together, once for a worker's run
// of panels. Where the rows of f32 arithmetic are gathered, or each is scaled by its weight first (Llama 4), or formats differ, or the team's scratch is too small,
// they are made from the f32 rows instead.
#include <string.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/matmul_plan.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kUnitPanels = 4;
constexpr int64_t kMostFew = 8;

int64_t aligned(int64_t n) { return (n + 63) / 64 * 64; }

// One worker's view of the op.
class Experts {
 public:
  Experts(const MoeMatmul& op, Lane& lane) : op_(op), lane_(lane), first_rows_(op.plan.row_as<const int32_t>(0)), pair_of_row_(first_rows_ + op.n_experts + 1) {
    touched_ = reinterpret_cast<int32_t*>(lane.own.data());
    for (int e = 0; e < op.n_experts; ++e)
      if (first_rows_[e + 1] > first_rows_[e]) {
        touched_[n_touched_++] = e;
        for (int i = 0; i < 2 && op.w[i]; ++i) mixed_ |= op.w[i][e]->format != op.w[i][touched_[0]]->format;
      }
  }

  void run() {
    if (n_touched_ == 0) return;
    const Matmul any = matmul_of(touched_[0], 0, 0);
    const Plan plan(any, kUnitPanels);
    n_planes_ = plan.n_planes;
    row_bytes_ = n_planes_ > 0 ? n_planes_ * plane_bytes(op_.x.cols) : aligned(op_.x.cols * 4);

    // Own scratch: touched experts, f32 row of a scaled token, tokens quantized for itself, unpacked panels, rows of an expert.
    std::byte* next = lane_.own.data() + aligned(op_.n_experts * 4);
    const auto take = [&](int64_t n) { return std::exchange(next, next + aligned(n)); };
    scaled_ = reinterpret_cast<float*>(take(op_.x.cols * 4));
    std::byte* const few = take(n_planes_ > 0 ? kMostFew * row_bytes_ : 0);
    unpacked_ = take(kUnitPanels * superblocks_of(op_.x.cols) * 1536);
    rows_ = next;
    most_rows_ = (lane_.own.data() + lane_.own.size() - next) / row_bytes_;
    if (most_rows_ < 1) __builtin_trap();
    quantize_inputs(plan, few);

    const int64_t per_expert = plan.n_units(), n_units = per_expert * n_touched_;
    lane_.share(n_units, chunk_of(n_units, lane_.n_workers), [&](int64_t unit, int64_t last) {
      while (unit < last) {
        const int64_t a = unit % per_expert, b = per_expert - a < last - unit ? per_expert : a + last - unit;
        run_units(touched_[unit / per_expert], a, b);
        unit += b - a;
      }
    });
  }

 private:
  // The product for rows [first, first + n) of those of expert e; in integer arithmetic nobody reads x itself.
  Matmul matmul_of(int e, int64_t first, int64_t n) const {
    Matmul matmul{.out = {}, .x = {nullptr, FormatId::f32, n, op_.x.cols, 0}};
    for (int i = 0; i < 2 && op_.w[i]; ++i) {
      matmul.w[i] = op_.w[i][e];
      matmul.out[i] = op_.out[i].slice_rows(first_rows_[e] + first, n);
      if (op_.bias[i]) matmul.bias[i] = op_.bias[i].slice_rows(e, 1);
    }
    return matmul;
  }

  void quantize_inputs(const Plan& plan, std::byte* few) {
    if (n_planes_ == 0 || op_.weights || mixed_) return;
    const int64_t n = op_.gather ? op_.x.rows : first_rows_[op_.n_experts];
    if (n <= kMostFew) {
      inputs_ = few;
      for (int64_t t = 0; t < n; ++t) QuantizedTokens(inputs_, op_.x.cols, n_planes_).quantize(t, op_.x.f32(t), plan.kinds);
    } else if (n * row_bytes_ <= static_cast<int64_t>(lane_.shared.size())) {
      inputs_ = lane_.shared.data();
      const auto [first, last] = lane_.part(n);
      for (int64_t t = first; t < last; ++t) QuantizedTokens(inputs_, op_.x.cols, n_planes_).quantize(t, op_.x.f32(t), plan.kinds);
      lane_.barrier();
    }
  }

  // Units [a, b) of expert e, for as many rows at a time as scratch holds.
  void run_units(int e, int64_t a, int64_t b) {
    const int64_t n_rows = first_rows_[e + 1] - first_rows_[e];
    for (int64_t first = 0; first < n_rows; first += most_rows_) {
      const int64_t n = n_rows - first < most_rows_ ? n_rows - first : most_rows_;
      Matmul matmul = matmul_of(e, first, n);
      const Plan plan(matmul, kUnitPanels);
      std::byte* const rows = rows_of(plan, e, first_rows_[e] + first, n);
      if (n_planes_ == 0) matmul.x = op_.gather ? Tensor{rows, FormatId::f32, n, op_.x.cols, row_bytes_} : op_.x.slice_rows(first_rows_[e] + first, n);
      const QuantizedTokens x(rows, op_.x.cols, n_planes_);
      plan.for_panels(a, b, [&](int i, int64_t begin, int64_t end) { matmul_panels(matmul, i, begin, end, x, unpacked_); });
    }
  }

  // Grouped rows [first, first + n), of expert e, one after the other as the tiles want them.
  std::byte* rows_of(const Plan& plan, int e, int64_t first, int64_t n) {
    if (!op_.gather && n_planes_ == 0) return nullptr;
    if (!op_.gather && inputs_) return inputs_ + first * row_bytes_;
    if (inputs_ && n == 1) return inputs_ + token_of(first) * row_bytes_;
    if (kept_expert_ == e && kept_first_ == first) return rows_;
    kept_expert_ = e;
    kept_first_ = first;
    for (int64_t r = 0; r < n; ++r) {
      if (inputs_) {
        ::memcpy(rows_ + r * row_bytes_, inputs_ + token_of(first + r) * row_bytes_, static_cast<size_t>(row_bytes_));
        continue;
      }
      const float* x = input_row(first + r, n_planes_ > 0 ? scaled_ : reinterpret_cast<float*>(rows_ + r * row_bytes_));
      if (n_planes_ > 0) QuantizedTokens(rows_, op_.x.cols, n_planes_).quantize(r, x, plan.kinds);
    }
    return rows_;
  }

  int64_t token_of(int64_t row) const { return pair_of_row_[row] / op_.top_k; }

  // Input of a grouped row in f32; where it is not as x has it, or must be in `copy`, it is put there.
  const float* input_row(int64_t row, float* copy) const {
    const float* x = op_.x.f32(op_.gather ? token_of(row) : row);
    if (n_planes_ > 0 && !op_.weights) return x;
    const float weight = op_.weights ? op_.weights.f32(token_of(row))[pair_of_row_[row] % op_.top_k] : 1.0f;
    for_lanes(0, op_.x.cols, [&](int64_t i, int n) { store_n(copy + i, mul(load_n(x + i, n), set1(weight)), n); });
    return copy;
  }

  const MoeMatmul& op_;
  Lane& lane_;
  const int32_t *first_rows_, *pair_of_row_;
  int32_t* touched_;
  int n_touched_ = 0, n_planes_ = 0, kept_expert_ = -1;
  bool mixed_ = false;                       // experts in different formats, which want different sums beside the codes
  int64_t kept_first_ = 0;                   // of the rows that lie in rows_
  int64_t row_bytes_ = 0, most_rows_ = 0;
  float* scaled_ = nullptr;
  std::byte *inputs_ = nullptr, *unpacked_ = nullptr, *rows_ = nullptr;      // inputs_: all tokens (or grouped rows) quantized; null: made when they are wanted
};

}  // namespace

void moe_matmul(const MoeMatmul& op, Lane& lane) { Experts(op, lane).run(); }

}  // namespace ridge::cpu::RIDGE_ISA_NS
