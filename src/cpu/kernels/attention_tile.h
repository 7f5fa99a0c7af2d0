// The arithmetic of attention on one tile of 64 positions. Both products are the same small matrix product, C[m][16n] (+)= A[m][k] B[k][16n], in which every
// number of C is one chain of fused multiply-adds over k: how C is cut into registers changes nothing in the result, so a query gives the same bits alone and
// among others.
#pragma once
#include "cpu/kernels/kv_formats.h"
#include "cpu/simd/math.h"

namespace ridge::cpu::RIDGE_ISA_NS {

inline constexpr int kProductRows = kAccumulators >= 8 ? 8 : kAccumulators;      // of C in registers at a time

// A few queries are done with a tile sooner than the memory with the next: where kAsksAhead, the product asks for the next tile line by line on its way. Two
// Neoverse N1, a token behind 4096: 12.4 GB/s of KV instead of 6.7, eight behind 512 each: 11.3 instead of 7.1; asking for the whole tile at once is slower than not at all.
//
// C is f32, `accumulate` or not. Strides in numbers; b_next is from one vector of B to the one on its right. ahead: as many bytes as B has, wanted next; or null.
template <class Kv>
struct Product {
  float* c;
  int64_t c_stride;
  const float* a;
  int64_t a_stride;
  const typename Kv::Bits* b;
  int64_t b_stride, b_next;
  int n_k;
  bool accumulate;
  const std::byte* ahead = nullptr;

  template <int MR, int NR>
  void block(int m, int n) const {
    if (kAsksAhead && ahead) multiply<MR, NR, kAsksAhead>(m, n);
    else multiply<MR, NR, false>(m, n);
  }
  template <int MR, int NR, bool kAhead>
  void multiply(int m, int n) const {
    float* out = c + m * c_stride + 16 * n;
    const float* x = a + m * a_stride;
    const typename Kv::Bits* y = b + b_next * n;
    // Unrolled over k, the loop is 16 multiply-adds for every 10 other instructions: 37 of 39 GFLOP/s on a Neoverse N1, against 33.
    F sum[MR][NR];
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NR; ++j) sum[i][j] = accumulate ? load(out + i * c_stride + 16 * j) : zero();
    constexpr int kBytes = NR * 16 * sizeof(typename Kv::Bits);
    const std::byte* next = kAhead ? ahead + int64_t{n} / NR * n_k * kBytes : nullptr;
#pragma GCC unroll 4
    for (int k = 0; k < n_k; ++k) {
      if constexpr (kAhead)
        for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(next + k * kBytes + i, 0, 2);
      F v[NR];
#pragma GCC unroll 4
      for (int j = 0; j < NR; ++j) v[j] = Kv::load16(y + k * b_stride + b_next * j);
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) {
        const F s = set1(x[i * a_stride + k]);
#pragma GCC unroll 4
        for (int j = 0; j < NR; ++j) sum[i][j] = fma(s, v[j], sum[i][j]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NR; ++j) store(out + i * c_stride + 16 * j, sum[i][j]);
  }

  // MR rows of C, all its vectors.
  template <int MR>
  void rows(int m, int n_begin, int n_end) const {
    constexpr int NR = kAccumulators / MR < 1 ? 1 : kAccumulators / MR > 4 ? 4 : kAccumulators / MR;
    int n = n_begin;
    for (; n + NR <= n_end; n += NR) block<MR, NR>(m, n);
    for (; n < n_end; ++n) block<MR, 1>(m, n);
  }

  // A column strip of B stays in the first-level cache while all rows of A pass over it.
  void run(int n_m, int n_vectors) const {
    constexpr int kMost = kProductRows, kStrip = kAccumulators / kMost;
    if (n_m < kMost) return few(0, n_m, 0, n_vectors);
    for (int n = 0; n < n_vectors; n += kStrip) {
      const int end = n + kStrip < n_vectors ? n + kStrip : n_vectors;
      int m = 0;
      for (; m + kMost <= n_m; m += kMost) rows<kMost>(m, n, end);
      few(m, n_m, n, end);
    }
  }
  void few(int m, int n_m, int n_begin, int n_end) const {
    if constexpr (kAccumulators > 4)
      if (m + 4 <= n_m) rows<4>(m, n_begin, n_end), m += 4;
    if constexpr (kAccumulators > 1)
      if (m + 2 <= n_m) rows<2>(m, n_begin, n_end), m += 2;
    for (; m < n_m; ++m) rows<1>(m, n_begin, n_end);
  }
};

// Softmax as a value: what is known after some positions. Adding tiles and merging two of them are the only operations, always in the order of positions.
struct SoftmaxState {
  float largest, sum;                        // -inf and 0: nothing seen
};

// A tile is added for many queries in four passes, so that nobody waits for one query's largest score: scale_tile for each query, add_largest for 16 queries
// at a time, weigh_tile for each, add_sums for 16.

// Makes 64 raw scores those of the softmax, -inf outside positions [first, last) of the tile (last > first), and returns the largest.
inline float scale_tile(float* s, int first, int last, float scale, float softcap) {
  F x[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    x[j] = mul(load(s + 16 * j), set1(scale));
    if (softcap > 0) x[j] = soft_cap(x[j], softcap);
  }
  if (first > 0 || last < 64) {
    const F nothing = set1(-__builtin_inff());
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) x[j] = select(first_n(first - 16 * j), nothing, select(first_n(last - 16 * j), x[j], nothing));
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) store(s + 16 * j, x[j]);
  return reduce_max(max(max(x[0], x[1]), max(x[2], x[3])));
}

// The factors for what 16 queries accumulated before: 1 where the largest stays.
inline void add_largest(float* factor, float* largest, const float* tile_largest) {
  const F before = load(largest), now = max(load(tile_largest), before);
  store(factor, select(lt(before, now), exp(sub(before, now)), set1(1.0f)));
  store(largest, now);
}

// Scores become weights; returns their sum.
inline float weigh_tile(float* s, float largest) {
  F x[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    x[j] = exp_of_nonpositive(sub(load(s + 16 * j), set1(largest)));
    store(s + 16 * j, x[j]);
  }
  return reduce_add(add(add(x[0], x[1]), add(x[2], x[3])));
}

inline void add_sums(float* sum, const float* factor, const float* tile_sum) { store(sum, add(mul(load(sum), load(factor)), load(tile_sum))); }

inline float exp1(float x) {
  float all[16];
  store(all, exp(set1(x)));
  return all[0];
}

// o += other_o, both of n numbers (n a multiple of 16). The new state.
inline SoftmaxState merge(const SoftmaxState& state, float* o, const SoftmaxState& other, const float* other_o, int64_t n) {
  if (other.sum == 0) return state;
  const float largest = other.largest > state.largest ? other.largest : state.largest;
  const float mine = exp1(state.largest - largest), its = exp1(other.largest - largest);
  for (int64_t i = 0; i < n; i += 16) store(o + i, add(mul(load(o + i), set1(mine)), mul(load(other_o + i), set1(its))));
  return {largest, state.sum * mine + other.sum * its};
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
