// A stand-in for CUDA's own header (cuda_runtime.h beside it): as much as kernels use.
#pragma once
#include "base/float_types.h"
#include "cuda_runtime.h"

struct __half { uint16_t bits; };
inline float __half2float(__half v) { return ridge::f16_to_f32(v.bits); }
