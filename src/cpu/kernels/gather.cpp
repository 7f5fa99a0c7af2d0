// The rows whose logits are wanted, with what is still pending added.
#include "cpu/kernels/kernels.h"

#include "backend/step.h"

namespace ridge::cpu::RIDGE_ISA_NS {

void gather_rows(const GatherRows& op, Lane& lane) {
  const int32_t* rows = lane.step->logit_rows().data();
  for_pieces(lane, op.out.rows, op.out.cols, [&](int64_t r, int64_t first, int64_t last) {
    const float *x = op.x.f32(rows[r]), *pending = op.pending ? op.pending.f32(rows[r]) : nullptr;
    float* out = op.out.f32(r);
    for_lanes(first, last, [&](int64_t i, int n) {
      F v = load_n(x + i, n);
      if (pending) v = add(v, mul(set1(op.pending_scale), load_n(pending + i, n)));
      store_n(out + i, v, n);
    });
  });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
