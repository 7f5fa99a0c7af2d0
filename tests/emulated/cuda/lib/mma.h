// A warp's products and loads of matrices (src/cuda/lib/mma.h), in the order of sums that products of a warpgroup have here.
#pragma once
#define mma_bf16 ptx_mma_bf16
#define load_four_matrices ptx_load_four_matrices
#include "../../../../src/cuda/lib/mma.h"
#undef mma_bf16
#undef load_four_matrices

namespace ridge::cuda {

template <class Number>
void multiply_warp(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Number& number_of) {
  const uint32_t g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  float rows[2][16], columns[2][16];
  const auto number = [&](uint64_t brought, int i) { return number_of(uint16_t(brought >> (16 * i))); };
  for (int half = 0; half < 2; ++half) {
    const uint64_t* const brought = emulated::exchange(uint64_t{a[2 * half + 1]} << 32 | a[2 * half]);
    for (uint32_t of = 0; of < 4; ++of)
      for (int r = 0; r < 2; ++r)
        for (int i = 0; i < 2; ++i) rows[r][8 * half + 2 * int(of) + i] = number(brought[4 * g + of], 2 * r + i);
  }
  const uint64_t* const brought = emulated::exchange(uint64_t{b1} << 32 | b0);
  for (uint32_t c = 0; c < 2; ++c)
    for (uint32_t of = 0; of < 4; ++of)
      for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 2; ++i) columns[c][8 * half + 2 * int(of) + i] = number(brought[4 * (2 * q + c) + of], 2 * half + i);
  for (int k = 0; k < 16; ++k)
    for (int j = 0; j < 4; ++j) d[j] += rows[j / 2][k] * columns[j % 2][k];
}

inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { multiply_warp(d, a, b0, b1, [](uint16_t bits) { return bf16_to_f32(bits); }); }

template <bool kTransposed>
void load_four_matrices(uint32_t (&v)[4], const void* row) {
  const uint64_t* const brought = emulated::exchange(reinterpret_cast<uintptr_t>(row));
  const uint32_t g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  for (uint32_t i = 0; i < 4; ++i)
    if constexpr (kTransposed) v[i] = reinterpret_cast<const uint16_t*>(brought[8 * i + 2 * q])[g] | uint32_t{reinterpret_cast<const uint16_t*>(brought[8 * i + 2 * q + 1])[g]} << 16;
    else v[i] = reinterpret_cast<const uint32_t*>(brought[8 * i + g])[q];
}

}  // namespace ridge::cuda
