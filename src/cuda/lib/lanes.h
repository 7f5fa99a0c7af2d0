// The input of a matmul for several tokens (kernels/several_tokens.cu): bf16 in the order in which lanes take it, [unit][group of 8 tokens][half of a lane's 16 inputs][lane]
// 16 bytes. Whoever makes the input may write it here at once, where it is whole units; tokens that pad the last group may hold anything, since no other token sees them.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace ridge::cuda {

struct Lanes {
  std::byte* data = nullptr;                 // null: nowhere
  int n_groups = 0;
  bool halves = false;                       // lib/unit.h: lane_input<halves>

  // Where input k of a token lies; the next ones follow up to a multiple of 8.
  __host__ __device__ std::byte* at(uint32_t token, uint32_t k) const {       // no signs: a rest is one instruction then, not five
    const uint32_t in_unit = k % 64, q = halves ? in_unit % 32 / 8 : in_unit / 16, h = halves ? in_unit / 32 : in_unit % 16 / 8;
    return data + ((((int64_t{k / 64} * n_groups + token / 8) * 2 + h) * 8 + token % 8) * 4 + q) * 16 + 2 * (k % 8);
  }
  // From input k of a token to its input k + n, for whole units.
  __host__ __device__ int64_t bytes_of(int n) const { return int64_t{n / 64} * n_groups * 1024; }
};

}  // namespace ridge::cuda
