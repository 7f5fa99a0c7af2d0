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

__device__ inline float act(ActKind kind, float v) {
  switch (kind) {
    case ActKind::silu: return act<ActKind::silu>(v);
    case ActKind::gelu_tanh: return act<ActKind::gelu_tanh>(v);
    case ActKind::gelu_erf: return act<ActKind::gelu_erf>(v);
    default: return act<ActKind::relu>(v);
  }
}

}  // namespace ridge::cuda
