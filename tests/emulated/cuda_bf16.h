// A stand-in for CUDA's own header (cuda_runtime.h beside it): as much as kernels use.
#pragma once
#include <cmath>

#include "base/float_types.h"
#include "cuda_runtime.h"

struct __nv_bfloat16 { uint16_t bits; };
struct __nv_bfloat162 { __nv_bfloat16 x, y; };
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return {ridge::f32_to_bf16(v)}; }
inline float __bfloat162float(__nv_bfloat16 v) { return ridge::bf16_to_f32(v.bits); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v) { return {v, v}; }
inline __nv_bfloat162 __float2bfloat162_rn(float v) { return __floats2bfloat162_rn(v, v); }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return __floats2bfloat162_rn(__bfloat162float(a.x) * __bfloat162float(b.x), __bfloat162float(a.y) * __bfloat162float(b.y)); }
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __floats2bfloat162_rn(std::fma(__bfloat162float(a.x), __bfloat162float(b.x), __bfloat162float(c.x)), std::fma(__bfloat162float(a.y), __bfloat162float(b.y), __bfloat162float(c.y)));
}
