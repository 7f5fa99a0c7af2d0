// TileProduct (simd/tiles.h) for a few rows, on vectors: the same chains, the same bits. B is read where it lies, a row of 32 numbers at a time.
//
// Tiles would do it, but not fast enough: with 512 positions behind it a token's attention took 5.7 to 6.3 ms on them where f32 on vectors took 4.7 (Emerald Rapids, two
// threads, two heads to a KV head), what they read converted and written first.
#pragma once
#include "cpu/simd/tiles.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

// C[m][32 n] (+)= A[m][k] B[k][32 n]; row(k, n): 32 bf16 numbers of B. C in the order of store_pairs within 32. Strides in numbers.
template <class Row>
struct FewProduct {
  float* c;
  int64_t c_stride;
  const float* a;
  int64_t a_stride;
  int first_k, last_k;                       // first_k: a multiple of 32
  bool accumulate;
  const Row& row;

  template <int M, int N>
  void block(int m, int n) const {
    float* out = c + m * c_stride + 32 * n;
    const float* x = a + m * a_stride;
    F sum[M][2 * N];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < 2 * N; ++j) sum[i][j] = accumulate ? load(out + i * c_stride + 16 * j) : zero();
    for (int chunk = first_k; chunk < last_k; chunk += 32) {
      F part[2][M][2 * N];
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd)
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
          for (int j = 0; j < 2 * N; ++j) part[odd][i][j] = zero();
      const int end = chunk + 32 < last_k ? chunk + 32 : last_k;
      int k = chunk;
      for (; k + 2 <= end; k += 2) {
        add<M, N>(part[0], x, k, n);
        add<M, N>(part[1], x, k + 1, n);
      }
      if (k < end) add<M, N>(part[0], x, k, n);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < 2 * N; ++j) sum[i][j] = RIDGE_ISA_NS::add(sum[i][j], RIDGE_ISA_NS::add(part[0][i][j], part[1][i][j]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < 2 * N; ++j) store(out + i * c_stride + 16 * j, sum[i][j]);
  }

  template <int M, int N>
  [[gnu::always_inline]] void add(F (&part)[M][2 * N], const float* x, int k, int n) const {
    F y[2 * N];
#pragma GCC unroll 2
    for (int j = 0; j < N; ++j) widen(y[2 * j], y[2 * j + 1], row(k, n + j));
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const F s = set1(x[i * a_stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < 2 * N; ++j) part[i][j] = fma(s, y[j], part[i][j]);
    }
  }

  // 24 vectors of sums at most.
  void run(int n_m, int first_n, int last_n) const {
    int m = 0;
    for (; m + 4 <= n_m; m += 4)
      for (int n = first_n; n < last_n; ++n) block<4, 1>(m, n);
    if (m + 2 <= n_m) rows<2>(m, first_n, last_n), m += 2;
    if (m < n_m) rows<1>(m, first_n, last_n);
  }
  template <int M>
  void rows(int m, int n, int last_n) const {
    for (; n + 2 <= last_n; n += 2) block<M, 2>(m, n);
    if (n < last_n) block<M, 1>(m, n);
  }
};

}  // namespace
}  // namespace ridge::cpu::RIDGE_ISA_NS
