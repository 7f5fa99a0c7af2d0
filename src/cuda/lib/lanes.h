// The input of a matmul for several tokens (kernels/matmul/several_tokens.cu): bf16, [unit][token] 128 bytes, in the order and swizzled as lib/tiles.h says, for wgmma; or, for kernels/matmul/matmul.cu, in the order in which
// lanes take it, [unit][group of 8 tokens][half of a lane's 16 inputs][lane] 16 bytes. Whoever makes the input may write it here at once, where it is whole units; tokens that pad the last group may hold anything, since no other token sees them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/lib/tiles.h"

namespace ridge::cuda {

struct Lanes {
  std::byte* data = nullptr;                 // null: nowhere
  int n_groups = 0;
  bool halves = false;                       // lib/unit.h: lane_input<halves>
  bool rows = false;                         // a token's inputs of a unit lie together, for wgmma
  bool operator==(const Lanes&) const = default;

  // Where input k of a token lies, and k + 1 with an even k.
  __host__ __device__ std::byte* at(uint32_t token, uint32_t k) const {       // no signs: a rest is one instruction then, not five
    if (rows) return data + (int64_t{k / 64} * n_groups * 8 + token) * 128 + row_place(int(token), int(k % 64), halves) + k % 2 * 2;
    const uint32_t in_unit = k % 64, q = halves ? in_unit % 32 / 8 : in_unit / 16, h = halves ? in_unit / 32 : in_unit % 16 / 8;
    return data + ((((int64_t{k / 64} * n_groups + token / 8) * 2 + h) * 8 + token % 8) * 4 + q) * 16 + 2 * (k % 8);
  }
  __device__ void put(uint32_t token, uint32_t k, float v) const { *reinterpret_cast<__nv_bfloat16*>(at(token, k)) = __float2bfloat16_rn(v); }
  // Inputs k to k + 3 (k a multiple of four) at the place of k.
  __device__ void put_four(std::byte* at, uint2 v) const {
    if (!rows) *reinterpret_cast<uint2*>(at) = v;
    else *reinterpret_cast<uint32_t*>(at) = v.x, *reinterpret_cast<uint32_t*>(reinterpret_cast<uintptr_t>(at) ^ 16) = v.y;
  }
  // From input k of a token to its input k + n, for whole units.
  __host__ __device__ int64_t bytes_of(int n) const { return int64_t{n / 64} * n_groups * 1024; }
};

}  // namespace ridge::cuda
