// The matmul for many tokens, where the device has a kernel for it.
#pragma once
#include "cuda/kernels/kernels.h"
#include "cuda/lib/tiles.h"

namespace ridge::cuda {

constexpr int kGemmFrom = 65;                                               // tokens from which it is used

struct GemmPart {                                                           // one weight of the op
  const std::byte* units;
  float* out;
  const float* bias;
  int64_t out_stride;                                                       // in floats
  int rows, first_block;                                                    // first_block: of this weight among the row blocks; the launcher fills it in
  float scale;
};
struct GemmParts { GemmPart part[3]; int n; };

// Whether all weights of an op go to gemm(), and whether an activation of its two outputs can be done on the way.
bool gemm_takes(const Matmul& op, const Launch& launch);
bool gemm_activates(const Matmul& op, const Activate& activate, const Launch& launch);

// Parts of one format over one input, which lies in `tiles` already or is copied there first.
void gemm(FormatId format, const GemmParts& parts, const Tensor& x, std::byte* tiles, bool is_tiled, const Launch& launch);
// Gate and up: the activated product leaves as tiles, the input of the matmul that follows.
void gemm_activate(std::byte* out_tiles, const Matmul& op, ActKind kind, std::byte* tiles, bool is_tiled, const Launch& launch);

}  // namespace ridge::cuda
