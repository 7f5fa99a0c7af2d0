// The matmul for many tokens, where the device has a kernel for it.
#pragma once
#include "cuda/kernels/kernels.h"
#include "cuda/lib/tiles.h"

namespace ridge::cuda {

constexpr int kGemmFrom = 33;                                               // tokens from which it is used
constexpr int64_t kMostChainSums = int64_t{32} << 20;                       // bytes of Launch::chain_sums

struct GemmPart {                                                           // one weight of the op
  const std::byte* units;
  float* out;
  const float* bias;
  const float* row_scales;                                                  // null: none
  int64_t out_stride;                                                       // in floats
  int rows, first_block;                                                    // first_block: of this weight among the row blocks; the launcher fills it in
  float scale;
};
// Of one weight alone: its output is not written but added to x, whose rows are as far apart; none where x is null. The copy engine adds, as fmaf(1, output, x) would, but for numbers
// below 1e-38, which it may take for zeros.
struct GemmResidual { float* x; int64_t stride; };                          // stride in floats
// factors: what the sums of a token are multiplied with, for as many as tiles have; null: nothing.
struct GemmParts { GemmPart part[3]; int n; GemmResidual residual = {}; const float* factors = nullptr; };

// What sums of a row are multiplied with.
__device__ inline float scale_of(const GemmPart& part, int row) { return part.row_scales ? part.scale * part.row_scales[row] : part.scale; }

inline GemmPart part_from(const Matmul& op, int i) {
  const Weight& w = *op.w[i];
  return {w.packed.data, op.out[i].f32(), op.bias[i].data ? op.bias[i].f32() : nullptr, w.row_scales.data ? w.row_scales.f32() : nullptr, op.out[i].stride / 4, int(w.rows), 0, w.scale};
}

// Whether all weights of an op go to gemm(); whether whoever makes its input may write it as tiles, in the one order that all of them want, and which; whether an activation of its
// two outputs can be done on the way to `next`.
bool gemm_takes(const Matmul& op, const Launch& launch);
bool gemm_takes_tiles(const Matmul& op, const Launch& launch);
Tiles tiles_for(const Matmul& op, std::byte* data);
bool gemm_activates(const Matmul& op, const Activate& activate, const Matmul& next, const Launch& launch);

// Parts of one unit, that of `first`, over one input, which lies in `tiles` already or is copied there first.
void gemm(const Weight& first, const GemmParts& parts, const Tensor& x, std::byte* tiles, bool is_tiled, const Launch& launch);
// Gate and up: the activated product leaves as tiles, the input of the matmul that follows, in the order of this one's.
void gemm_activate(std::byte* out_tiles, const Matmul& op, ActKind kind, std::byte* tiles, bool is_tiled, const float* factors, const Launch& launch);

}  // namespace ridge::cuda
