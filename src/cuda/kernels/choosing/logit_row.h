// A row of logits as whoever chooses from it sees it: a token that its mask does not allow is at -inf.
#pragma once
#include <cuda_runtime.h>

#include <cmath>

#include "cuda/kernels/kernels.h"

namespace ridge::cuda {

struct LogitRow {
  const float* x;
  const uint32_t* allowed = nullptr;         // null: all are

  // Around the first-level cache: another kernel has just written them.
  __device__ float operator()(int token) const {
    if (allowed && !(__ldcg(allowed + token / 32) >> token % 32 & 1)) return -INFINITY;
    return __ldcg(x + token);
  }
};

// Without a mask; and with the one that its step may have.
__device__ inline LogitRow logit_row(const Tensor& rows, int row) { return {reinterpret_cast<const float*>(rows.data + row * rows.stride)}; }
__device__ inline LogitRow logit_row(const Tensor& rows, int row, const Choices& to) {
  LogitRow x = logit_row(rows, row);
  if (to.masks && to.draws[row].masked) x.allowed = to.masks + int64_t{row} * ((rows.cols + 31) / 32);
  return x;
}

}  // namespace ridge::cuda
