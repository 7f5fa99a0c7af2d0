// Rows of the embedding table. They stay as the file has them and are decoded when they are looked up: a step reads a handful of a hundred thousand.
#include "cpu/kernels/kernels.h"

#include "backend/step.h"

namespace ridge::cpu::RIDGE_ISA_NS {

void embed(const Embed& op, Lane& lane) {
  const auto& stored = *reinterpret_cast<const StoredWeight*>(op.table->packed.data);
  const int32_t* ids = (op.by_position ? lane.step->positions() : lane.step->tokens()).data();
  auto* row = reinterpret_cast<float*>(lane.own.data());
  const F scale = set1(op.scale);
  const auto [first, last] = lane.part(op.out.rows);
  for (int64_t t = first; t < last; ++t) {
    decode_stored_row(row, stored, ids[t]);
    float* out = op.out.f32(t);
    for_lanes(0, op.table->cols, [&](int64_t i, int n) {
      const F x = mul(load_n(row + i, n), scale);
      store_n(out + i, op.add ? add(load_n(out + i, n), x) : x, n);
    });
  }
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
