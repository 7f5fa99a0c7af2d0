// A stand-in for CUDA's own header (cuda_runtime.h beside it): what declarations name.
#pragma once
#include "base/float_types.h"
#include "cuda_runtime.h"

struct __nv_bfloat16 { uint16_t bits; };
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return {ridge::f32_to_bf16(v)}; }
