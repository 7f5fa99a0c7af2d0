// Scales and sums in place: logit scale and soft cap, temperature by position, a scaled addition.
#include <math.h>

#include "backend/step.h"
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

void add_scaled(const AddScaled& op, Lane& lane) {
  const F scale = set1(op.scale);
  for_pieces(lane, op.x.rows, op.x.cols, [&](int64_t t, int64_t first, int64_t last) {
    float* x = op.x.f32(t);
    const float* y = op.y.f32(t);
    for_lanes(first, last, [&](int64_t i, int n) { store_n(x + i, add(load_n(x + i, n), mul(scale, load_n(y + i, n))), n); });
  });
}

void scale_by_position(const ScaleByPosition& op, Lane& lane) {
  for_pieces(lane, op.x.rows, op.x.cols, [&](int64_t t, int64_t first, int64_t last) {
    const float steps = ::floorf(static_cast<float>(lane.step->positions().data()[t] + op.offset) / static_cast<float>(op.floor_scale));
    const F scale = set1(1.0f + op.factor * ::logf(1.0f + steps));
    float* x = op.x.f32(t);
    for_lanes(first, last, [&](int64_t i, int n) { store_n(x + i, mul(load_n(x + i, n), scale), n); });
  });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
