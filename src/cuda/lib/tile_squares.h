// What a norm's factor is made of, where the matmul after it multiplies its sums with that: sums of the squares of every 16 numbers of a row, which are a row tile of the matmul that makes them.
// [token][64][kept()]: sum t is number t / 64 of t mod 64. lib/row_norm.h has the order in which they are added.
#pragma once
#include <cuda_runtime.h>

namespace ridge::cuda {

struct TileSquares {
  float* at = nullptr;                       // null: nowhere
  int cols = 0;                              // kMostScaledCols at most
  __host__ __device__ int kept() const { return cols <= 4096 ? 4 : 8; }
  __host__ __device__ int place(int token, int first_col) const { return (token * 64 + first_col / 16 % 64) * kept() + first_col / 1024; }
};

constexpr int kMostScaledCols = 8192;

}  // namespace ridge::cuda
