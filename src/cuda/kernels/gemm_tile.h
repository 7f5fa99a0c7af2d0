// What the kernels for many and for several tokens share where a tile of outputs starts and ends.
#pragma once
#include "cuda/kernels/gemm.h"

namespace ridge::cuda {

__device__ inline const GemmPart& part_of(const GemmParts& parts, int row_block) {
  int which = 0;
  while (which + 1 < parts.n && row_block >= parts.part[which + 1].first_block) ++which;
  return parts.part[which];
}

// Scaled, with a bias where there is one: every kernel of this arithmetic rounds twice.
__device__ inline float finished(float sum, float scale, float row_scale, const float* bias) {
  const float v = __fmul_rn(__fmul_rn(sum, scale), row_scale);
  return bias ? __fadd_rn(v, *bias) : v;
}

}  // namespace ridge::cuda
