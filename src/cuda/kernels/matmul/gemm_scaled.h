// Units with scales of their own (fp8 in blocks of 128, q8_0, q4_0, q4_1) in the matmul for many tokens: the sums of what one scale is for are made from zero and added to the
// chain with it, as few tokens have it. Those additions are half as many instructions as the tensor cores take cycles, so the two warpgroups take turns: one multiplies while the
// other adds and decodes.
//
// Minimums (q4_1) take the sums of a unit's activations, as four more multiplications with operands of ones: reading sums made beforehand would, by count, keep shared memory
// busy for as long (192 cycles a half; not measured).
#pragma once
#include "cuda/kernels/matmul/operand.h"
#include "cuda/lib/wgmma.h"

namespace ridge::cuda::blocks {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class Unit, int kTokens>
struct ScaledSums {
  static constexpr int kSteps = Unit::kScales, kEach = 4 / kSteps;           // operands of a scale
  float sums[kTokens / 2];
  uint32_t a[2][2][4];                       // two operands for each half of the inputs

  // leave(): the unit and the tokens have been read.
  template <class AwaitTurn, class GiveTurn, class Leave>
  __device__ void multiply(float (&acc)[kTokens / 2], const std::byte* unit, uint64_t b, int lane, const AwaitTurn& await_turn, const GiveTurn& give_turn, const Leave& leave) {
    float low, high;
    load(unit, lane, 0);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      await_turn();
      wgmma_fence();
#pragma unroll
      for (int t = s * kEach; t < (s + 1) * kEach; ++t) wgmma(sums, a[t / 2][t % 2], b + 2 * t, t == s * kEach);
      wgmma_commit();
      give_turn();
      Operands<Unit>::load_scale(low, high, unit, lane, s);
      if (s + 1 < kSteps) load(unit, lane, s + 1);
      wgmma_await<0>();
      hold(sums);
      if (s + 1 == kSteps && !Unit::kMinimums) leave();
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) acc[j] = fmaf(sums[j], j / 2 % 2 ? high : low, acc[j]);
    }
    if constexpr (Unit::kMinimums) {                                          // sums of activations: of the first 32 inputs with row g, of the others with row g + 8
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i / 4][0][i % 4] = Unit::ones(i / 4 * 2, i % 4);
      await_turn();
      wgmma_fence();
#pragma unroll
      for (int t = 0; t < 4; ++t) wgmma(sums, a[t / 2][0], b + 2 * t, t == 0);
      wgmma_commit();
      give_turn();
      float of_low[2], of_high[2];
      Operands<Unit>::load_minimums(of_low, of_high, unit, lane);
      wgmma_await<0>();
      hold(sums);
      leave();
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) {
        const int of_token = j - j / 2 % 2 * 2;
        acc[j] = fmaf(sums[of_token], j / 2 % 2 ? of_high[0] : of_low[0], acc[j]);
        acc[j] = fmaf(sums[of_token + 2], j / 2 % 2 ? of_high[1] : of_low[1], acc[j]);
      }
    }
  }

 private:
  __device__ void load(const std::byte* unit, int lane, int s) {
    Operands<Unit>::load(a[s], unit, lane, s);
    if constexpr (kSteps == 1) Operands<Unit>::load(a[1], unit, lane, 1);
  }
};

#endif

}  // namespace ridge::cuda::blocks
