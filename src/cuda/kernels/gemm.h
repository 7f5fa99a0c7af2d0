// The matmul for many tokens, where the device has a kernel for it.
#pragma once
#include "cuda/kernels/kernels.h"

namespace ridge::cuda {

struct GemmPart {                                                           // one weight of the op
  const std::byte* units;
  float* out;
  const float* bias;
  int64_t out_stride;                                                       // in floats
  int rows, first_block;                                                    // first_block: of this weight among the row blocks; the launcher fills it in
  float scale;
};
struct GemmParts { GemmPart part[3]; int n; };

constexpr int kGemmTokens = 192;                                            // of a block: the input's copy is padded to whole blocks

// Parts of one format over one input. False where there is no such kernel: another device, another format.
bool gemm_wgmma(FormatId format, GemmParts parts, const Tensor& x, const Launch& launch);

}  // namespace ridge::cuda
