// Activation functions, in f32, as the reference spells them.
#pragma once
#include "backend/op.h"

namespace ridge::cuda {

template <ActKind kind>
__device__ float act(float v) {
  if constexpr (kind == ActKind::silu) return v / (1.0f + expf(-v));
  if constexpr (kind == ActKind::gelu_tanh) return 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
  if constexpr (kind == ActKind::gelu_erf) return 0.5f * v * (1.0f + erff(v * 0.7071067811865476f));
  if constexpr (kind == ActKind::relu2) return v > 0 ? v * v : 0.0f;
  if constexpr (kind == ActKind::sigmoid) return 1.0f / (1.0f + expf(-v));
  return fmaxf(v, 0.0f);
}

// a / b for numbers that are not extreme: the steps that the compiler takes for such numbers, without the branch it puts around each division.
__device__ inline float plain_quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
#else
  float r = 1.0f / b;
#endif
  r = fmaf(r, fmaf(r, -b, 1.0f), r);
  const float q = __fmul_rn(a, r);
  return fmaf(r, fmaf(q, -b, a), q);
}

// v[i] = act(v[i]), the same bits. Divisions one by one, each with its branch, take a warp 100 cycles; side by side they take as long as their instructions.
template <ActKind kind, int n>
__device__ void act_all(float (&v)[n]) {
  if constexpr (kind == ActKind::silu) {
    constexpr float kLeast = 0x1p-60f, kMost = 0x1p60f;
    float below[n];
    bool plain = true;
#pragma unroll
    for (int i = 0; i < n; ++i) below[i] = 1.0f + expf(-v[i]), plain &= fabsf(v[i]) >= kLeast && fabsf(v[i]) <= kMost && below[i] <= kMost;
    if (plain) {
#pragma unroll
      for (int i = 0; i < n; ++i) v[i] = plain_quotient(v[i], below[i]);
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i) v[i] = v[i] / below[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) v[i] = act<kind>(v[i]);
  }
}

__device__ inline float act(ActKind kind, float v) {
  switch (kind) {
    case ActKind::silu: return act<ActKind::silu>(v);
    case ActKind::gelu_tanh: return act<ActKind::gelu_tanh>(v);
    case ActKind::gelu_erf: return act<ActKind::gelu_erf>(v);
    default: return act<ActKind::relu>(v);
  }
}

}  // namespace ridge::cuda
