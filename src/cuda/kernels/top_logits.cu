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

// Which of the largest logits is drawn (backend/step.h), for every thread. They are in descending order, so that each cut leaves the first of them.
__device__ int drawn(const float* logits, int n_found, const Draw& draw) {
  __shared__ double up_to[TopLogits::kMost];                                // the weight of all up to one
  const int i = threadIdx.x, k = min(draw.top_k, n_found);
  const double weight = i < k ? exp((double(logits[i]) - double(logits[0])) * draw.sharpness) : 0.0;
  if (i < TopLogits::kMost) up_to[i] = weight;
  __syncthreads();
  for (int d = 1; d < TopLogits::kMost; d *= 2) {
    const double before = i >= d && i < TopLogits::kMost ? up_to[i - d] : 0.0;
    __syncthreads();
    if (i < TopLogits::kMost) up_to[i] += before;
    __syncthreads();
  }
  const double all = up_to[TopLogits::kMost - 1];
  const bool stays = i < k && (i == 0 || ((draw.top_p >= 1.0f || up_to[i - 1] < double(draw.top_p) * all) && weight >= double(draw.min_p)));
  const int n = __syncthreads_count(stays);
  const double wanted = draw.u * up_to[n - 1];
  return min(__syncthreads_count(i < n && up_to[i] <= wanted), n - 1);
}

// draws: null, or by row; then the tables are those of the step's turn, and `tops` is not looked at.
__global__ void __launch_bounds__(kThreads) top_kernel(TopLogits* tops, Tensor rows, const Draw* draws, Choices to) {
  __shared__ Key keys[kHeld];
  __shared__ int n_found;
  follow();
  const float* x = reinterpret_cast<const float*>(rows.data + blockIdx.x * rows.stride);
  const int at = draws ? *to.turn * to.rows + int(blockIdx.x) : int(blockIdx.x);
  TopLogits& top = (draws ? to.tops : tops)[at];
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
  __shared__ float logits[TopLogits::kMost];
  if (fits && threadIdx.x < min(n_found, TopLogits::kMost)) {
    const int token = int(0xFFFFFFFFu - uint32_t(keys[threadIdx.x]));
    top.top[threadIdx.x] = {token, logits[threadIdx.x] = __ldcg(x + token)};
  }
  if (!draws || !fits || n_found == 0 || draws[blockIdx.x].top_k <= 0) return;
  __syncthreads();
  const int chosen = drawn(logits, min(n_found, TopLogits::kMost), draws[blockIdx.x]);
  if (threadIdx.x > 0) return;
  const int token = int(0xFFFFFFFFu - uint32_t(keys[chosen]));
  to.peaks[at] = {token, logits[chosen]};
  to.tokens[at] = token;
}

}  // namespace

void find_top(TopLogits* top, const Tensor& rows, const Launch& l) {
  if (rows.rows > 0) launch_kernel(top_kernel, rows.rows, kThreads, 0, l.stream, top, rows, static_cast<const Draw*>(nullptr), Choices{});
}

void draw_from_top(const Tensor& rows, const Launch& l) {
  if (rows.rows > 0) launch_kernel(top_kernel, rows.rows, kThreads, 0, l.stream, static_cast<TopLogits*>(nullptr), rows, l.choices.draws, l.choices);
}

}  // namespace ridge::cuda
