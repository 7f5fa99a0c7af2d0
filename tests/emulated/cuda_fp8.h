// A stand-in for CUDA's own header (cuda_runtime.h beside it): as much as kernels use.
#pragma once
#include "base/float_types.h"

enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3 };
inline uint8_t __nv_cvt_float_to_fp8(float v, __nv_saturation_t, __nv_fp8_interpretation_t) { return ridge::f32_to_e4m3(v); }
