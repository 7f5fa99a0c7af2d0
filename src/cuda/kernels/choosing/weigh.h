// Sums of what logits of a row weigh, exp((logit - from) * sharpness), in doubles: by pieces of a row, a block each, and over a block's threads.
#pragma once
#include <cuda_runtime.h>

#include "backend/draw.h"
#include "cuda/kernels/choosing/logit_row.h"

namespace ridge::cuda {

constexpr int kWeighThreads = 256, kPiece = 2048;
constexpr int pieces_of(int64_t n) { return int((n + kPiece - 1) / kPiece); }

// Of all logits, or of those that min_p keeps. NaN where rounding decides whether it does, which leaves every sum open.
struct Weigher {
  LogitRow x;
  double from, sharpness;
  float min_p;
  __device__ double distance(float logit) const { return (double(logit) - from) * sharpness; }
  __device__ double operator()(int token) const {
    const double d = distance(x(token)), weight = exp(d);
    if (min_p <= 0.0f) return weight;
    const int kept = is_kept(weight, d, min_p);
    return kept > 0 ? weight : kept < 0 ? nan("") : 0.0;
  }
};

// The sum of a piece of n numbers in all, by a block of kWeighThreads, for each of its threads.
__device__ inline double weigh_piece(const Weigher& weight, int piece, int n) {
  __shared__ double warp_sums[kWeighThreads / 32];
  const int first = piece * kPiece, last = min(first + kPiece, n);
  double sum = 0;
#pragma unroll
  for (int i = first + threadIdx.x; i < first + kPiece; i += kWeighThreads)
    if (i < last) sum += weight(i);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kWeighThreads / 32; ++w) sum += warp_sums[w];
  return sum;
}

// Running sums over a block's threads (n_threads of them), each with its own included; and of all of them.
struct Sums { double up_to, all; };
template <int n_threads>
__device__ Sums running_sums(double own) {
  __shared__ double warp_sums[n_threads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const double before = __shfl_up_sync(0xffffffffu, own, d);
    if (lane >= d) own += before;
  }
  __syncthreads();                                                          // those of the call before have been read
  if (lane == 31) warp_sums[warp] = own;
  __syncthreads();
  double base = 0, all = 0;
  for (int w = 0; w < n_threads / 32; ++w) {
    if (w == warp) base = all;
    all += warp_sums[w];
  }
  return {base + own, all};
}

// What weigh_piece() has left of a row, added up for every thread.
template <int n_threads>
__device__ double sum_of_pieces(const double* sums, int n_pieces) {
  double own = 0;
  for (int p = threadIdx.x; p < n_pieces; p += n_threads) own += __ldcg(sums + p);
  return running_sums<n_threads>(own).all;
}

}  // namespace ridge::cuda
