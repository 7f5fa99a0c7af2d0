// Logit scale and soft cap, in place.
#include "cpu/kernels/kernels.h"
#include "cpu/simd/math.h"

namespace ridge::cpu::RIDGE_ISA_NS {

void scale_cap(const ScaleCap& op, Lane& lane) {
  const F scale = set1(op.scale);
  for_pieces(lane, op.x.rows, op.x.cols, [&](int64_t t, int64_t first, int64_t last) {
    float* x = op.x.f32(t);
    for_lanes(first, last, [&](int64_t i, int n) {
      const F v = mul(load_n(x + i, n), scale);
      store_n(x + i, op.cap > 0 ? soft_cap(v, op.cap) : v, n);
    });
  });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
