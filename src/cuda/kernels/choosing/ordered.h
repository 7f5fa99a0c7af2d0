// Numbers as integers in the same order: -0 and 0 are equal, a NaN is above every number, nothing is 0.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::cuda {

constexpr uint32_t kNan = 0xFFFFFFFFu;

__device__ inline uint32_t ordered(float v) {
  if (isnan(v)) return kNan;
  const uint32_t bits = __float_as_uint(v == 0.0f ? 0.0f : v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Of what is neither nothing nor a NaN.
__device__ inline float number_of(uint32_t ordered) { return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7FFFFFFFu : ~ordered); }

}  // namespace ridge::cuda
