// What the kernels that choose from rows, or score them, leave for each other: of every row the weights of its pieces and the largest numbers of its groups (kernels/choosing/largest.h).
#pragma once
#include "cuda/kernels/choosing/largest.h"

namespace ridge::cuda {

struct RowScratch {
  double* sums;                              // [row][piece]
  uint32_t* maxima;                          // [row][kMostGroups]
  int n_pieces;

  RowScratch(std::byte* scratch, const Tensor& rows) : sums(reinterpret_cast<double*>(scratch)), n_pieces(pieces_of(rows.cols)) { maxima = reinterpret_cast<uint32_t*>(sums + rows.rows * n_pieces); }
  static int64_t bytes(const Tensor& rows) { return rows.rows * (pieces_of(rows.cols) * int64_t(sizeof(double)) + kMostGroups * int64_t(sizeof(uint32_t))); }
  __device__ double* sums_of(int row) const { return sums + int64_t{row} * n_pieces; }
  __device__ uint32_t* maxima_of(int row) const { return maxima + int64_t{row} * kMostGroups; }
};

}  // namespace ridge::cuda
