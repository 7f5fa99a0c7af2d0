// out = act(gate) * up, number by number.
#include "cpu/kernels/kernels.h"
#include "cpu/simd/math.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

template <class Act>
void run_activate(const Activate& op, Lane& lane, Act act) {
  const F limit = set1(op.limit), least = set1(-op.limit), one = set1(op.kind == ActKind::gpt_oss ? 1.0f : 0.0f);
  const auto gated = [&](F gate, const float* up, int64_t i, int n) {
    if (op.limit > 0) gate = min(gate, limit);
    const F a = act(gate);
    if (!up) return a;
    F u = load_n(up + i, n);
    if (op.limit > 0) u = max(least, min(limit, u));
    return mul(a, add(u, one));
  };
  if (op.gate.cols == op.out.cols) {
    for_pieces(lane, op.out.rows, op.out.cols, [&](int64_t t, int64_t first, int64_t last) {
      const float *gate = op.gate.f32(t), *up = op.up ? op.up.f32(t) : nullptr;
      float* out = op.out.f32(t);
      for_lanes(first, last, [&](int64_t i, int n) { store_n(out + i, gated(load_n(gate + i, n), up, i, n), n); });
    });
    return;
  }
  // A gate for neighbours together: one worker has a row, since the gate may not be overwritten by another's columns.
  const int64_t shared = op.out.cols / op.gate.cols;
  const auto [first_row, last_row] = lane.part(op.out.rows);
  for (int64_t t = first_row; t < last_row; ++t) {
    const float* up = op.up ? op.up.f32(t) : nullptr;
    float* out = op.out.f32(t);
    for (int64_t g = op.gate.cols - 1; g >= 0; --g) {
      const F gate = set1(op.gate.f32(t)[g]);
      for_lanes(g * shared, (g + 1) * shared, [&](int64_t i, int n) { store_n(out + i, gated(gate, up, i, n), n); });
    }
  }
}

}  // namespace

void activate(const Activate& op, Lane& lane) {
  switch (op.kind) {
    case ActKind::silu: return run_activate(op, lane, [](F x) { return silu(x); });
    case ActKind::gelu_tanh: return run_activate(op, lane, [](F x) { return gelu_tanh(x); });
    case ActKind::gelu_erf: return run_activate(op, lane, [](F x) { return gelu_erf(x); });
    case ActKind::relu: return run_activate(op, lane, [](F x) { return relu(x); });
    case ActKind::relu2: return run_activate(op, lane, [](F x) { return mul(relu(x), relu(x)); });
    case ActKind::sigmoid: return run_activate(op, lane, [](F x) { return sigmoid(x); });
    case ActKind::softplus: return run_activate(op, lane, [](F x) { return softplus(x); });
    case ActKind::identity: return run_activate(op, lane, [](F x) { return x; });
    case ActKind::gpt_oss: return run_activate(op, lane, [](F x) { return mul(x, sigmoid(mul(x, set1(1.702f)))); });
  }
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
