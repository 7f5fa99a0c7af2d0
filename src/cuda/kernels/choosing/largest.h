// The largest numbers of a row in order. Two steps: the largest of each group of neighbours, by a block for each piece of the row (find_maxima); then, by one block of 1024 threads, a bound that
// 256 groups reach, and hardly more. Only those groups are looked at again, and what reaches the bound there is sorted. On random rows that is a fifth of the row and some 300 numbers, which
// are sorted by counting for each how many are larger.
#pragma once
#include <cuda_runtime.h>

#include "backend/backend.h"
#include "cuda/kernels/choosing/logit_row.h"
#include "cuda/kernels/choosing/ordered.h"
#include "cuda/kernels/choosing/weigh.h"

namespace ridge::cuda {

constexpr int kSortThreads = 1024, kHeldKeys = 2 * kSortThreads;
constexpr int kMostGroups = 2 * kSortThreads;                               // of a row

// A row of n numbers has groups of 2^group_shift(n) of them, no more than kMostGroups up to four million and no fewer than half as many where there are 2,048 numbers; a group lies in one piece.
__host__ __device__ constexpr int group_shift(int n) {
  int shift = 0;
  while (kMostGroups << shift < n && 1 << shift < kPiece) shift++;
  return shift;
}

// A number and its place: descending keys are descending numbers, lower places first among equals.
using Key = unsigned long long;
__device__ inline Key key_of(uint32_t number, int place) { return Key{number} << 32 | (0xFFFFFFFFu - uint32_t(place)); }
__device__ inline int place_in(Key key) { return int(0xFFFFFFFFu - uint32_t(key)); }
__device__ inline float number_in(Key key) { return number_of(uint32_t(key >> 32)); }

// The largest of each group of a piece, in order (ordered.h), to maxima[kMostGroups] of the row, by a block of kWeighThreads.
__device__ inline void find_maxima(uint32_t* maxima, const LogitRow& x, int piece, int n) {
  constexpr int kWarps = kWeighThreads / 32, kOwn = kPiece / kWarps, kEach = kOwn / 32;      // kOwn: neighbours that a warp has
  __shared__ uint32_t of_warp[kWarps];
  const int shift = group_shift(n), size = 1 << shift, lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = piece * kPiece + warp * kOwn + lane;
  if (n > kMostGroups << shift) return;                                     // nobody asks for them
  uint32_t numbers[kEach], best = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) numbers[j] = first + 32 * j < n ? ordered(x(first + 32 * j)) : 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    best = max(best, numbers[j]);
    if ((32 * (j + 1) & (size - 1)) != 0 && j + 1 < kEach) continue;
    for (int apart = min(size, 32) / 2; apart > 0; apart /= 2) best = max(best, __shfl_xor_sync(0xffffffffu, best, apart));
    if (size > kOwn) of_warp[warp] = best;
    else if (const int group = (first + 32 * j) >> shift; (lane & (size - 1)) == 0 && group << shift < n) maxima[group] = best;
    best = 0;
  }
  if (size <= kOwn) return;
  __syncthreads();
  const int each = size / kOwn;
  if (int(threadIdx.x) >= kWarps / each || piece * kPiece + int(threadIdx.x) * size >= n) return;
  for (int w = 0; w < each; ++w) best = max(best, of_warp[threadIdx.x * each + w]);
  maxima[(piece * kPiece >> shift) + threadIdx.x] = best;
}

// Descending; n a power of two, by threads that take a pair each.
template <int n>
__device__ void sort_keys(Key* keys) {
  for (int run = 2; run <= n; run *= 2)
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int i = threadIdx.x; i < n / 2; i += kSortThreads) {
        const int low = i / apart * 2 * apart + i % apart, high = low + apart;
        const bool descends = (low & run) == 0;
        const Key a = keys[low], b = keys[high];
        if ((a < b) == descends) keys[low] = b, keys[high] = a;
      }
      __syncthreads();
    }
}

// The same of n different keys, one a thread at most.
__device__ inline void sort_few_keys(Key* keys, int n) {
  const Key own = int(threadIdx.x) < n ? keys[threadIdx.x] : 0;
  int n_larger = 0;
  if (own > 0) {
#pragma unroll 8
    for (int i = 0; i < n; ++i) n_larger += keys[i] > own;
  }
  __syncthreads();
  if (own > 0) keys[n_larger] = own;
  __syncthreads();
}

// By a block of kSortThreads, from what find_maxima() has left. How many there are, TopLogits::kMost at most, in keys[kHeldKeys] in shared memory; -1 where there is a NaN, or more equals than there
// is room for. Numbers under `least` are none.
__device__ inline int largest_in_order(Key* keys, const LogitRow& x, int n, const uint32_t* maxima, uint32_t least = 1) {
  constexpr int kWanted = TopLogits::kMost, kEnough = kWanted + 32, kFew = 512, kAtOnce = 8;
  __shared__ int n_found, n_kept;
  __shared__ uint16_t kept[kMostGroups];
  const int shift = group_shift(n), n_groups = (n + (1 << shift) - 1) >> shift;
  if (n_groups > kMostGroups) return -1;
  uint32_t own[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int group = threadIdx.x + i * kSortThreads;
    own[i] = group < n_groups ? __ldcg(maxima + group) : 0;
  }
  if (threadIdx.x == 0) n_found = n_kept = 0;
  if (__syncthreads_or(own[0] == kNan || own[1] == kNan)) return -1;
  // As many groups as are wanted reach `bound`, or it is the least; fewer reach `beyond`.
  const auto n_reach = [&](uint32_t number) { return __syncthreads_count(own[0] >= number) + __syncthreads_count(own[1] >= number); };
  uint32_t bound = least, beyond = kNan;
  for (int n_bound = n_reach(bound); n_bound > kEnough && beyond - bound > 1;) {
    const uint32_t middle = bound + (beyond - bound) / 2;
    const int n_middle = n_reach(middle);
    if (n_middle >= kWanted) bound = middle, n_bound = n_middle;
    else beyond = middle;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (own[i] >= bound) kept[atomicAdd(&n_kept, 1)] = uint16_t(threadIdx.x + i * kSortThreads);
  __syncthreads();
  const int n_numbers = n_kept << shift;
  for (int first = threadIdx.x; first < n_numbers; first += kAtOnce * kSortThreads) {
    uint32_t numbers[kAtOnce];
    int places[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int nth = first + i * kSortThreads;
      places[i] = nth < n_numbers ? (int(kept[nth >> shift]) << shift) + (nth & ((1 << shift) - 1)) : n;
      numbers[i] = places[i] < n ? ordered(x(places[i])) : 0;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (numbers[i] < bound) continue;
      const int at = atomicAdd(&n_found, 1);
      if (at < kHeldKeys) keys[at] = key_of(numbers[i], places[i]);
    }
  }
  __syncthreads();
  const int n_held = n_found;
  if (n_held > kHeldKeys) return -1;
  if (n_held <= kFew) {
    sort_few_keys(keys, n_held);
  } else {
    for (int i = n_held + threadIdx.x; i < kHeldKeys; i += kSortThreads) keys[i] = 0;
    __syncthreads();
    sort_keys<kHeldKeys>(keys);
  }
  return min(n_held, kWanted);
}

}  // namespace ridge::cuda
