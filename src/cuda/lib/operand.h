// A unit of a weight (lib/unit.h) that lies in shared memory, as the four A operands of one warp: what the many-token matmul multiplies. Units with scales of their own
// (Unit::kScales of them, for 4 / kScales operands each) say those of rows g and g + 8; with minimums (Unit::kMinimums), what the sums of activations are multiplied with.
#pragma once
#include "cuda/lib/fp8_unit.h"

namespace ridge::cuda {

template <class Unit> struct Operands;

// Units without scales of their own: what a lane holds of one, from which it takes operand after operand. (bf16 is multiplied where it lies.)
template <class Scales> struct Operands<E2m1Unit<Scales>> {
  using Unit = E2m1Unit<Scales>;
  struct Held { uint32_t words[4]; __nv_bfloat162 scales; };
  __device__ static Held open(const std::byte* unit, int lane) {
    const typename Unit::Held held = Unit::template load<Staged>(unit, lane);
    return {{held.codes.x, held.codes.y, held.codes.z, held.codes.w}, Unit::widen(held.scales)};
  }
  __device__ static void take(uint32_t (&a)[4], const Held& held, int t) {
#pragma unroll
    for (int p = 0; p < 4; ++p) a[p] = Unit::decode(held.words, t, p, held.scales);
  }
};

template <> struct Operands<Fp8Unit<false>> {
  using Held = const uint2*;
  __device__ static Held open(const std::byte* unit, int lane) { return reinterpret_cast<const uint2*>(unit) + 2 * lane; }
  __device__ static void take(uint32_t (&a)[4], Held held, int t) {
    const uint2 v = held[t / 2 * 64 + t % 2];
    Fp8Unit<false>::decode(a[0], a[1], v.x);
    Fp8Unit<false>::decode(a[2], a[3], v.y);
  }
};

template <> struct Operands<Fp8Unit<true>> {
  using Unit = Fp8Unit<true>;
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

template <> struct Operands<Q41Unit> : Operands<Q4Unit> {
  __device__ static void load_minimums(float (&low)[2], float (&high)[2], const std::byte* unit, int lane) {
    float scale_low[2], scale_high[2];
    load_scales(scale_low, scale_high, unit, lane);
    const __half* minimums = reinterpret_cast<const __half*>(unit + Q4Unit::kBytes);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      low[h] = Q41Unit::shifted(__half2float(minimums[h * 16 + lane / 4]), scale_low[h]);
      high[h] = Q41Unit::shifted(__half2float(minimums[h * 16 + 8 + lane / 4]), scale_high[h]);
    }
  }
};

}  // namespace ridge::cuda
