// The largest numbers of a row in order, by a block of 1024 threads: of the 1024 largest that its threads find, one each, the 256th is a bound that at least 256 of the row
// reach, and on random rows hardly more; those are kept and sorted. No histogram, nothing that many threads count together. Two passes over the row (from the second-level
// cache) and two small sorts: about 20 us, rows side by side.
#pragma once
#include <cuda_runtime.h>

#include "backend/backend.h"
#include "cuda/lib/logit_row.h"
#include "cuda/lib/ordered.h"

namespace ridge::cuda {

constexpr int kSortThreads = 1024, kHeldKeys = 2 * kSortThreads;

// A number and its place: descending keys are descending numbers, lower places first among equals.
using Key = unsigned long long;
__device__ inline Key key_of(uint32_t number, int place) { return Key{number} << 32 | (0xFFFFFFFFu - uint32_t(place)); }
__device__ inline int place_in(Key key) { return int(0xFFFFFFFFu - uint32_t(key)); }
__device__ inline float number_in(Key key) { return number_of(uint32_t(key >> 32)); }

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

// How many there are, TopLogits::kMost at most, in keys[kHeldKeys] in shared memory; -1 where there is a NaN, or more equals than there is room for. Numbers under `least` are none.
__device__ inline int largest_in_order(Key* keys, const LogitRow& x, int n, uint32_t least = 1) {
  __shared__ int n_found;
  uint32_t best = 0;                                                        // below every number's
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += kSortThreads) best = max(best, ordered(x(i)));
  keys[threadIdx.x] = best;
  if (threadIdx.x == 0) n_found = 0;
  __syncthreads();
  sort_keys<kSortThreads>(keys);
  const bool has_nan = keys[0] == kNan;
  const uint32_t bound = max(uint32_t(keys[TopLogits::kMost - 1]), least);
  __syncthreads();
  for (int i = threadIdx.x; i < kHeldKeys; i += kSortThreads) keys[i] = 0;
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += kSortThreads) {
    const uint32_t number = ordered(x(i));
    if (number < bound) continue;
    const int place = atomicAdd(&n_found, 1);
    if (place < kHeldKeys) keys[place] = key_of(number, i);
  }
  __syncthreads();
  if (has_nan || n_found > kHeldKeys) return -1;
  sort_keys<kHeldKeys>(keys);
  return min(n_found, TopLogits::kMost);
}

}  // namespace ridge::cuda
