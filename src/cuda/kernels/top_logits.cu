// The largest logits of a row in order, so that the host can sample without seeing the row. A block takes a row: of the 1024 largest numbers that its threads find, one
// each, the 256th is a bound that at least 256 of the row reach, and on random rows hardly more; those are kept and sorted. No histogram, nothing that many
// threads count together. Two passes over the row (from the second-level cache) and two small sorts: about 20 us, rows side by side.
#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/ordered.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 1024, kHeld = 2 * kThreads;
using Key = unsigned long long;

// Descending; n a power of two, by threads that take a pair each.
template <int n>
__device__ void sort_keys(Key* keys) {
  for (int run = 2; run <= n; run *= 2)
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int i = threadIdx.x; i < n / 2; i += kThreads) {
        const int low = i / apart * 2 * apart + i % apart, high = low + apart;
        const bool descends = (low & run) == 0;
        const Key a = keys[low], b = keys[high];
        if ((a < b) == descends) keys[low] = b, keys[high] = a;
      }
      __syncthreads();
    }
}

__global__ void __launch_bounds__(kThreads) top_kernel(TopLogits* tops, Tensor rows) {
  __shared__ Key keys[kHeld];
  __shared__ int n_found;
  follow();
  const float* x = reinterpret_cast<const float*>(rows.data + blockIdx.x * rows.stride);
  TopLogits& top = tops[blockIdx.x];
  const int n = int(rows.cols);
  uint32_t best = 0;                                                        // below every number's
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += kThreads) best = max(best, ordered(__ldcg(x + i)));
  keys[threadIdx.x] = best;
  if (threadIdx.x == 0) n_found = 0;
  __syncthreads();
  sort_keys<kThreads>(keys);
  const bool has_nan = keys[0] == kNan;
  const uint32_t bound = max(uint32_t(keys[TopLogits::kMost - 1]), 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < kHeld; i += kThreads) keys[i] = 0;
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const uint32_t number = ordered(__ldcg(x + i));
    if (number < bound) continue;
    const int place = atomicAdd(&n_found, 1);
    if (place < kHeld) keys[place] = Key{number} << 32 | (0xFFFFFFFFu - uint32_t(i));
  }
  __syncthreads();
  const bool fits = !has_nan && n_found <= kHeld;
  if (fits) sort_keys<kHeld>(keys);
  if (threadIdx.x == 0) top.n_found = fits ? min(n_found, TopLogits::kMost) : -1;
  if (fits && threadIdx.x < min(n_found, TopLogits::kMost)) {
    const int token = int(0xFFFFFFFFu - uint32_t(keys[threadIdx.x]));
    top.top[threadIdx.x] = {token, __ldcg(x + token)};
  }
}

}  // namespace

void find_top(TopLogits* top, const Tensor& rows, const Launch& l) {
  if (rows.rows > 0) launch_kernel(top_kernel, rows.rows, kThreads, 0, l.stream, top, rows);
}

}  // namespace ridge::cuda
