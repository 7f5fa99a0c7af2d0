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

// Half of a unit at a time; the second is on its way while the first is multiplied.
template <> struct Operands<Fp8Unit<false>> {
  struct Held { const uint4* second; uint4 words; };
  __device__ static Held open(const std::byte* unit, int lane) {
    const uint4* const first = reinterpret_cast<const uint4*>(unit) + lane;
    return {first + 32, *first};
  }
  __device__ static void take(uint32_t (&a)[4], Held& held, int t) {
    Fp8Unit<false>::decode(a[0], a[1], t % 2 ? held.words.z : held.words.x);
    Fp8Unit<false>::decode(a[2], a[3], t % 2 ? held.words.w : held.words.y);
    if (t == 1) held.words = *held.second;
  }
};

// Units with scales of their own: two operands at a time, the first half of a lane's inputs and the second.
template <> struct Operands<Fp8Unit<true>> {
  using Unit = Fp8Unit<true>;
  __device__ static void load(uint32_t (&a)[2][4], const std::byte* unit, int lane, int s) {
    const uint4 words = reinterpret_cast<const uint4*>(unit)[s * 32 + lane];
    Unit::decode(a[0][0], a[0][1], words.x);
    Unit::decode(a[0][2], a[0][3], words.y);
    Unit::decode(a[1][0], a[1][1], words.z);
    Unit::decode(a[1][2], a[1][3], words.w);
  }
  __device__ static void load_scale(float& low, float& high, const std::byte* unit, int, int) { low = high = *reinterpret_cast<const float*>(unit + Unit::kCodeBytes); }
};

template <class Codes> struct Operands<ScaledUnit<Codes>> {
  __device__ static void load(uint32_t (&a)[2][4], const std::byte* unit, int lane, int s) { Codes::decode(a, Codes::template load<Staged>(unit, lane), s); }
  __device__ static void load_scale(float& low, float& high, const std::byte* unit, int lane, int s) {
    const __half* scales = reinterpret_cast<const __half*>(unit + Codes::kBytes) + s * 16 + lane / 4;
    low = __half2float(scales[0]), high = __half2float(scales[8]);
  }
};

template <> struct Operands<Q41Unit> : Operands<Q4Unit> {
  __device__ static void load_minimums(float (&low)[2], float (&high)[2], const std::byte* unit, int lane) {
    const __half* minimums = reinterpret_cast<const __half*>(unit + Q4Unit::kBytes);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float scale_low, scale_high;
      load_scale(scale_low, scale_high, unit, lane, h);
      low[h] = Q41Unit::shifted(__half2float(minimums[h * 16 + lane / 4]), scale_low);
      high[h] = Q41Unit::shifted(__half2float(minimums[h * 16 + 8 + lane / 4]), scale_high);
    }
  }
};

}  // namespace ridge::cuda
