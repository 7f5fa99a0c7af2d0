// Where a row of logits is largest, so that the host need not see the logits to go on greedily. Blocks take pieces of a row; a number and its place are one 64-bit key
// that grows with the number and falls with the place, so that the largest key does not depend on who comes first. The last block of a row says the result: to the host, and to the next step.
#include "cuda/kernels/choosing/logit_row.h"
#include "cuda/kernels/choosing/ordered.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512;

struct RowState { unsigned long long key; uint32_t n_done, unused; };

// kMasked: the step has masks. The usual one need not ask.
template <int kEach, bool kMasked>
__global__ void __launch_bounds__(kThreads) peaks_kernel(Choices to, Tensor rows, RowState* states) {
  constexpr int kPiece = kEach * kThreads;
  __shared__ unsigned long long warp_keys[kThreads / 32];
  follow();
  const int row = blockIdx.y, first = blockIdx.x * kPiece, last = min(first + kPiece, int(rows.cols));
  const LogitRow x = kMasked ? logit_row(rows, row, to) : logit_row(rows, row);
  const int at = *to.turn * to.rows + row;
  unsigned long long key = 0;
#pragma unroll
  for (int i = first + threadIdx.x; i < first + kPiece; i += kThreads)
    if (i < last) key = max(key, (unsigned long long)ordered(x(i)) << 32 | (0xFFFFFFFFu - uint32_t(i)));
#pragma unroll
  for (int d = 16; d > 0; d /= 2) key = max(key, __shfl_xor_sync(0xffffffffu, key, d));
  if (threadIdx.x % 32 == 0) warp_keys[threadIdx.x / 32] = key;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < kThreads / 32; ++w) key = max(key, warp_keys[w]);
  RowState& state = states[row];
  atomicMax(&state.key, key);
  __threadfence();
  if (atomicAdd(&state.n_done, 1u) + 1 < gridDim.x) return;
  const unsigned long long top = atomicExch(&state.key, 0ull);
  state.n_done = 0;
  const uint32_t number = uint32_t(top >> 32), place = 0xFFFFFFFFu - uint32_t(top);
  const Peak peak = number == kNan ? Peak{-1, 0.0f} : Peak{int32_t(place), number_of(number)};
  to.peaks[at] = peak;
  to.tokens[at] = peak.token;
}

}  // namespace

// As many numbers a thread as leave no block waiting for another to end: 32 rows of 151,936 took 15 us by four numbers a thread.
void find_peaks(const Tensor& rows, std::byte* state, const Launch& l) {
  if (rows.rows == 0) return;
  const auto run = [&](auto kernel, int each) {
    launch_kernel(kernel, dim3((rows.cols + each * kThreads - 1) / (each * kThreads), rows.rows), kThreads, 0, l.stream, l.choices, rows, reinterpret_cast<RowState*>(state));
  };
  const bool few = (rows.cols + 4 * kThreads - 1) / (4 * kThreads) * rows.rows <= 4 * l.n_sms;
  if (l.choices.masks) few ? run(peaks_kernel<4, true>, 4) : run(peaks_kernel<20, true>, 20);
  else few ? run(peaks_kernel<4, false>, 4) : run(peaks_kernel<20, false>, 20);
}

}  // namespace ridge::cuda
