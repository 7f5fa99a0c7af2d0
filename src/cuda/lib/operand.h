// A unit of a weight (lib/unit.h) that lies in shared memory, as the four A operands of one warp: what the many-token matmul multiplies. Units with scales of their own
// (Unit::kScales of them, for 4 / kScales operands each) say those of rows g and g + 8.
#pragma once
#include "cuda/lib/fp8_unit.h"

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

template <bool kBlocks> struct Operands<Fp8Unit<kBlocks>> {
  using Unit = Fp8Unit<kBlocks>;
  __device__ static void load(uint32_t (&a)[4][4], const std::byte* unit, int lane) { Unit::decode(a, Unit::template load<Staged>(unit, lane)); }
  __device__ static void load_scales(float (&low)[1], float (&high)[1], const std::byte* unit, int) { low[0] = high[0] = *reinterpret_cast<const float*>(unit + Unit::kCodeBytes); }
};

template <class Codes> struct Operands<ScaledUnit<Codes>> {
  __device__ static void load(uint32_t (&a)[4][4], const std::byte* unit, int lane) {
    const typename Codes::Held held = Codes::template load<Staged>(unit, lane);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t two[2][4];
      Codes::decode(two, held, h);
#pragma unroll
      for (int i = 0; i < 8; ++i) a[2 * h + i / 4][i % 4] = two[i / 4][i % 4];
    }
  }
  __device__ static void load_scales(float (&low)[2], float (&high)[2], const std::byte* unit, int lane) {
    const __half* scales = reinterpret_cast<const __half*>(unit + Codes::kBytes);
#pragma unroll
    for (int h = 0; h < 2; ++h) low[h] = __half2float(scales[h * 16 + lane / 4]), high[h] = __half2float(scales[h * 16 + 8 + lane / 4]);
  }
};

}  // namespace ridge::cuda
