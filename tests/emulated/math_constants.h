// A stand-in for CUDA's own header (cuda_runtime.h beside it): as much as kernels use.
#pragma once
#include <limits>

#define CUDART_INF_F std::numeric_limits<float>::infinity()
