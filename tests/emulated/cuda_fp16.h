// A stand-in for CUDA's own header (cuda_runtime.h beside it): as much as kernels use.
#pragma once
#include "base/float_types.h"
#include "cuda_runtime.h"

struct __half { uint16_t bits; };
struct __half2 { __half x, y; };
inline float __half2float(__half v) { return ridge::f16_to_f32(v.bits); }
inline __half __float2half_rn(float v) { return {ridge::f32_to_f16(v)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return __floats2half2_rn(__half2float(a.x) * __half2float(b.x), __half2float(a.y) * __half2float(b.y)); }
