// The tensor core instruction the matmuls are built on: D[16x8] += A[16x16] * B[16x8] in bf16 with f32 sums, for any GPU since sm_80.
// Lane l of a warp, g = l / 4, q = l % 4, holds
//   A  a[0] = row g   k 2q,2q+1    a[1] = row g+8 k 2q,2q+1    a[2] = row g   k 2q+8,2q+9    a[3] = row g+8 k 2q+8,2q+9
//   B  b[0] = k 2q,2q+1 col g      b[1] = k 2q+8,2q+9 col g
//   D  d[0], d[1] = row g cols 2q,2q+1          d[2], d[3] = row g+8 cols 2q,2q+1
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "cuda/lib/async_copy.h"

namespace ridge::cuda {

__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Sums before the first product. Also before a wgmma that is kFresh, where registers are scarce: it names D as if it read it, and what lay there before would keep its registers until then.
template <int n>
__device__ inline void set_zero(float (&d)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) d[i] = 0;
}
template <class T, int m, int n>
__device__ inline void set_zero(T (&d)[m][n]) {
#pragma unroll
  for (int i = 0; i < m; ++i) set_zero(d[i]);
}

// Four 8x8 matrices of 16-bit numbers; lane l gives the address of row l % 8 of matrix l / 8.
template <bool kTransposed>
__device__ inline void load_four_matrices(uint32_t (&v)[4], const void* row) {
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(shared_address(row)) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(shared_address(row)) : "memory");
}

__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}

}  // namespace ridge::cuda
