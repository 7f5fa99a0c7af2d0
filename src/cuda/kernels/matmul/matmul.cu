// Matmul on the tensor cores with weights on the 16-row side, so that 1 to 8 tokens cost the same. A block of 8 warps takes a few row tiles; its warps take the
// units of 64 inputs in turn (unit u goes to warp u mod 8) and their sums are added in the order of the warps. That split is the same for any number of tokens,
// so a token's result does not depend on what else is in the batch.
#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/matmul/gemm.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/units.h"

namespace ridge::cuda {
namespace {

constexpr int kWarps = 8;

using Part = GemmPart;                                                      // first_block: in the grid
using Parts = GemmParts;

// The input as lib/lanes.h has it, with zeros beyond the last token and input.
struct Input { const uint4* x; int n_tokens, n_groups, n_units; };

// RT row tiles and NT groups of 8 tokens a block. Weights do not depend on anything: kAhead units a warp are on their way before the kernel waits for its
// predecessors, and from then on the next kAhead, with their inputs, are loaded while the last are multiplied.
template <class Unit, int RT, int NT, int kAhead>
__global__ void __launch_bounds__(kWarps * 32) matmul_kernel(Parts parts, Input in, int first_group) {
  start_dependents();
  int which = 0;
  while (which + 1 < parts.n && int(blockIdx.x) >= parts.part[which + 1].first_block) ++which;
  const Part part = parts.part[which];
  const int first_tile = (blockIdx.x - part.first_block) * RT;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int n_tiles = (part.rows + kTileRows - 1) / kTileRows;
  const std::byte* tile[RT];
#pragma unroll
  for (int r = 0; r < RT; ++r) tile[r] = part.units + int64_t{min(first_tile + r, n_tiles - 1)} * in.n_units * Unit::kBytes;

  struct Ahead { typename Unit::Held held[kAhead][RT]; uint32_t b[kAhead][NT][8]; };
  const auto unit_of = [&](int base, int a) { return min(base + a * kWarps, in.n_units - 1); };
  const auto load_weights = [&](Ahead& ahead, int base) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
#pragma unroll
      for (int r = 0; r < RT; ++r) ahead.held[a][r] = Unit::load(tile[r] + int64_t{unit_of(base, a)} * Unit::kBytes, lane);
  };
  const auto load_input = [&](Ahead& ahead, int base) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        const uint4* x = in.x + (int64_t{unit_of(base, a)} * in.n_groups + first_group + n) * 64 + lane;
        const bool there = first_group + n < in.n_groups;
        put_inputs(ahead.b[a][n], there ? x[0] : uint4{0, 0, 0, 0}, there ? x[32] : uint4{0, 0, 0, 0});
      }
  };
  float acc[RT][NT][4];
  set_zero(acc);
  const auto multiply = [&](const Ahead& ahead, int base) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (base + a * kWarps >= in.n_units) break;
#pragma unroll
      for (int r = 0; r < RT; ++r) Unit::multiply(acc[r], ahead.held[a][r], ahead.b[a]);
    }
  };

  Ahead one, other;
  constexpr int kStride = kWarps * kAhead;
  load_weights(one, warp);
  await_predecessors();
  load_input(one, warp);
  for (int base = warp; base < in.n_units; base += 2 * kStride) {
    if (base + kStride < in.n_units) load_weights(other, base + kStride), load_input(other, base + kStride);
    multiply(one, base);
    if (base + kStride >= in.n_units) break;
    if (base + 2 * kStride < in.n_units) load_weights(one, base + 2 * kStride), load_input(one, base + 2 * kStride);
    multiply(other, base + kStride);
  }

  // Warps add up in order: [warp][row of RT * 16][token of NT * 8].
  __shared__ float sums[kWarps][16][NT * 8 + 1];
#pragma unroll
  for (int r = 0; r < RT; ++r) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[warp][g + (i >= 2 ? 8 : 0)][n * 8 + 2 * q + i % 2] = acc[r][n][i];
    __syncthreads();
    for (int e = threadIdx.x; e < 16 * NT * 8; e += kWarps * 32) {
      const int row = (first_tile + r) * kTileRows + e % 16, token = first_group * 8 + e / 16;
      if (row >= part.rows || token >= in.n_tokens) continue;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[w][e % 16][e / 16];
      sum = __fmul_rn(sum, scale_of(part, row));                            // never fused with the addition: every kernel of this arithmetic rounds here
      if (parts.factors) sum = __fmul_rn(sum, __ldcg(parts.factors + token));
      part.out[token * part.out_stride + row] = part.bias ? __fadd_rn(sum, part.bias[row]) : sum;
    }
  }
}

template <class Unit, int RT, int NT, int kAhead>
void launch(Parts parts, const Input& in, const Launch& l) {
  int n_blocks = 0;
  for (int i = 0; i < parts.n; ++i) {
    parts.part[i].first_block = n_blocks;
    parts.part[i].scale *= Unit::kFactor;
    n_blocks += (parts.part[i].rows + kTileRows * RT - 1) / (kTileRows * RT);
  }
  for (int first = 0; first < in.n_groups; first += NT) launch_kernel_as({.split = Split::driver}, matmul_kernel<Unit, RT, NT, kAhead>, n_blocks, kWarps * 32, 0, l.stream, parts, in, first);
}

template <class Unit>
void by_tokens(const Parts& parts, const Tensor& x, const Launch& l) {
  const int n_groups = (int(x.rows) + 7) / 8, n_units = (int(x.cols) + kUnit - 1) / kUnit;
  const Input in{reinterpret_cast<const uint4*>(l.matmul_scratch), int(x.rows), n_groups, n_units};
  input_in_lanes({l.matmul_scratch, n_groups, Unit::kHalves}, x, l);
  constexpr int kDeep = Unit::kBytes >= 2048 ? 1 : 2;
  if (n_groups == 1) return launch<Unit, 1, 1, kDeep>(parts, in, l);
  if (n_groups == 2) return launch<Unit, 1, 2, kDeep>(parts, in, l);
  if (n_groups <= 4) return launch<Unit, 2, 4, 1>(parts, in, l);
  launch<Unit, 2, 8, 1>(parts, in, l);
}

// f32 weights as they are: the check mode's matmul. A warp takes one output for up to 8 tokens.
__global__ void matmul_f32_kernel(Tensor out, Tensor x, Tensor w, const float* bias, float scale) {
  follow();
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x % 32, token = blockIdx.y;
  if (row >= w.rows) return;
  const float* weights = reinterpret_cast<const float*>(w.data + row * w.stride);
  const float* values = reinterpret_cast<const float*>(x.data + token * x.stride);
  float sum = 0;
  for (int64_t k = lane; k < w.cols; k += 32) sum = fmaf(weights[k], values[k], sum);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (lane == 0) reinterpret_cast<float*>(out.data + token * out.stride)[row] = sum * scale + (bias ? bias[row] : 0.0f);
}

}  // namespace

void matmul(const Matmul& op, std::byte* tiles, const float* factors, const AddNorm* residual, const Launch& l) {
  if (op.x.rows == 0) return;
  // Weights of one format share a launch.
  bool done[3] = {};
  for (int i = 0; i < 3; ++i) {
    if (!op.w[i] || done[i]) continue;
    const Weight& first = *op.w[i];
    if (first.arithmetic.x == FormatId::f32) {
      launch_kernel(matmul_f32_kernel, dim3((first.rows + 7) / 8, op.x.rows), 256, 0, l.stream, op.out[i], op.x, first.packed, op.bias[i].data ? op.bias[i].f32() : nullptr, first.scale);
      continue;
    }
    Parts parts{.part = {}, .n = 0, .residual = {}, .factors = factors};
    Matmul alike{.x = op.x};                                                 // the weights of one format
    for (int j = i; j < 3; ++j) {
      const Weight* w = op.w[j];
      if (!w || done[j] || !same_unit(*w, first)) continue;
      done[j] = true;
      alike.out[j] = op.out[j], alike.w[j] = w, alike.bias[j] = op.bias[j];
      parts.part[parts.n++] = part_from(op, j);
    }
    if (takes_few_tokens(alike, l)) {
      const FewPhase alone{alike, {}};
      matmul_few_tokens({&alone, 1}, {}, l);
      continue;
    }
    if (takes_several_tokens(alike, l)) {
      matmul_several_tokens(alike, {}, l);
      continue;
    }
    if (gemm_takes(alike, l)) {
      if (residual) parts.residual = {residual->x.f32(), residual->x.stride / 4};
      gemm(first, parts, op.x, tiles ? tiles : l.matmul_scratch, tiles != nullptr, l);
      continue;
    }
    with_unit(first, [&](auto unit) { by_tokens<decltype(unit)>(parts, op.x, l); });
  }
}

}  // namespace ridge::cuda
