// The norm of a head, as kernels get it.
#pragma once
#include "backend/op.h"

namespace ridge::cuda {

struct HeadWeights { const float* weight; int64_t head_stride; float eps, offset; };      // weight null: no norm; head_stride: from one head's weights to the next's

inline HeadWeights head_weights(const HeadNorm* op, int head_dim) {
  return op ? HeadWeights{op->weight.f32(), op->weight.cols == head_dim ? 0 : head_dim, op->eps, op->weight_offset} : HeadWeights{};
}

}  // namespace ridge::cuda
