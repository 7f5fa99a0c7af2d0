// A warp's products of attention (src/cuda/lib/flash_mma.h).
#pragma once
#include "cuda/lib/async_copy.h"
#include "cuda/lib/flash.h"
#include "cuda/lib/mma.h"

namespace ridge::cuda {

template <class T>
void flash_mma(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_warp(d, a, b0, b1, [](uint16_t bits) { return std::is_same_v<T, __half> ? f16_to_f32(bits) : bf16_to_f32(bits); });
}

}  // namespace ridge::cuda
