// A unit of a weight (lib/unit.h) that lies in shared memory, as the four A operands of one warp: what the many-token matmul multiplies.
#pragma once
#include "cuda/lib/unit.h"

namespace ridge::cuda {

template <class Unit> struct Operands;

template <> struct Operands<Bf16Unit> {
  __device__ static void load(uint32_t (&a)[4][4], const std::byte* unit, int lane) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const uint4 v = reinterpret_cast<const uint4*>(unit)[t * 32 + lane];
      a[t][0] = v.x, a[t][1] = v.y, a[t][2] = v.z, a[t][3] = v.w;
    }
  }
};

template <> struct Operands<Nvfp4Unit> {
  __device__ static void load(uint32_t (&a)[4][4], const std::byte* unit, int lane) {
    const uint4 codes = reinterpret_cast<const uint4*>(unit)[lane];
    const uint32_t scales = reinterpret_cast<const uint16_t*>(unit + 512)[lane];
    const __nv_bfloat162 low = Nvfp4Unit::scale_pair(scales, 0), high = Nvfp4Unit::scale_pair(scales, 1);
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int t = 0; t < 4; ++t)
#pragma unroll
      for (int p = 0; p < 4; ++p) a[t][p] = Nvfp4Unit::decode(words[t], p, p % 2 ? high : low);
  }
};

}  // namespace ridge::cuda
