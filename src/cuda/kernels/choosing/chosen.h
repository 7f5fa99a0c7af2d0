// What the step before chose, for kernels that look at a step's tokens.
#pragma once
#include "cuda/kernels/kernels.h"

namespace ridge::cuda {

// The token that a step names: a negative number refers to what the step before chose (backend/step.h).
__device__ inline int32_t named_token(int32_t id, const Choices& before) {
  if (id >= 0) return id;
  return before.tokens ? max(0, before.tokens[(1 - *before.turn) * before.rows + min(-1 - id, before.rows - 1)]) : 0;
}

}  // namespace ridge::cuda
