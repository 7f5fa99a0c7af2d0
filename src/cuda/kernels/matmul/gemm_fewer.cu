// Blocks of 64 tokens, and of 128.
#include "cuda/kernels/matmul/gemm_kernel.h"

namespace ridge::cuda::blocks {
RIDGE_FOR_PLAIN_UNITS(64)
RIDGE_FOR_SCALED_UNITS(64)
RIDGE_FOR_PLAIN_UNITS(128)
RIDGE_FOR_SCALED_UNITS(128)
}  // namespace ridge::cuda::blocks
