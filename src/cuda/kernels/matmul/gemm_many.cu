// Blocks of 192 tokens, and of 184.
#include "cuda/kernels/matmul/gemm_kernel.h"

namespace ridge::cuda::blocks {
RIDGE_FOR_PLAIN_UNITS(kTileTokens)
RIDGE_FOR_PLAIN_UNITS(kFewerTokens)
}  // namespace ridge::cuda::blocks
