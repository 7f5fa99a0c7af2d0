// out = act(gate) * up, number by number.
#include "cpu/kernels/kernels.h"
#include "cpu/simd/math.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

template <class Act>
void run_activate(const Activate& op, Lane& lane, Act act) {
  for_pieces(lane, op.out.rows, op.out.cols, [&](int64_t t, int64_t first, int64_t last) {
    const float *gate = op.gate.f32(t), *up = op.up ? op.up.f32(t) : nullptr;
    float* out = op.out.f32(t);
    for_lanes(first, last, [&](int64_t i, int n) {
      const F a = act(load_n(gate + i, n));
      store_n(out + i, up ? mul(a, load_n(up + i, n)) : a, n);
    });
  });
}

}  // namespace

void activate(const Activate& op, Lane& lane) {
  switch (op.kind) {
    case ActKind::silu: return run_activate(op, lane, [](F x) { return silu(x); });
    case ActKind::gelu_tanh: return run_activate(op, lane, [](F x) { return gelu_tanh(x); });
    case ActKind::gelu_erf: return run_activate(op, lane, [](F x) { return gelu_erf(x); });
    case ActKind::relu: return run_activate(op, lane, [](F x) { return relu(x); });
  }
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
