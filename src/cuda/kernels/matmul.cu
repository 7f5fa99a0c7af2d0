// Matmul on the tensor cores with weights on the 16-row side, so that 1 to 8 tokens cost the same. A block of 8 warps takes a few row tiles; its warps take the
// units of 64 inputs in turn (unit u goes to warp u mod 8) and their sums are added in the order of the warps. That split is the same for any number of tokens,
// so a token's result does not depend on what else is in the batch.
#include <algorithm>

#include "cuda/kernels/gemm.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/unit.h"

namespace ridge::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kGemmFrom = 65;                                               // tokens from which the kernel for many is used where there is one

struct Part {                                                               // one weight of the op
  const std::byte* units;
  float* out;
  const float* bias;
  int64_t out_stride;                                                       // in floats
  int rows, first_block;                                                    // first_block: of this weight in the grid
  float scale;
};
struct Parts { Part part[3]; int n; };

struct Input {
  const std::byte* x;                                                       // f32 rows as given, or bf16 rows padded to whole units
  int64_t stride;                                                           // bytes
  int n_tokens, cols;
};

// The 8 registers of B for one group of 8 tokens: the lane's 16 inputs of the unit for token n0 + g.
template <class Unit, bool kBf16>
__device__ void load_b(uint32_t (&b)[8], const Input& in, int token, int unit, int q) {
  if (token >= in.n_tokens) {
#pragma unroll
    for (int i = 0; i < 8; ++i) b[i] = 0;
    return;
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int k = unit * kUnit + lane_input<Unit::kHalves>(q, h);
    if constexpr (kBf16) {
      const uint4 v = *reinterpret_cast<const uint4*>(in.x + token * in.stride + 2 * k);
      b[4 * h] = v.x, b[4 * h + 1] = v.y, b[4 * h + 2] = v.z, b[4 * h + 3] = v.w;
    } else {
      const float* x = reinterpret_cast<const float*>(in.x + token * in.stride) + k;
      if (k + 8 <= in.cols) {
        const float4 u = *reinterpret_cast<const float4*>(x), v = *reinterpret_cast<const float4*>(x + 4);
        b[4 * h] = pack_bf16(u.x, u.y), b[4 * h + 1] = pack_bf16(u.z, u.w), b[4 * h + 2] = pack_bf16(v.x, v.y), b[4 * h + 3] = pack_bf16(v.z, v.w);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) b[4 * h + i] = pack_bf16(k + 2 * i < in.cols ? x[2 * i] : 0.0f, k + 2 * i + 1 < in.cols ? x[2 * i + 1] : 0.0f);
      }
    }
  }
}

// RT row tiles and NT groups of 8 tokens a block. Weights do not depend on anything: kAhead units a warp are on their way before the kernel waits for its
// predecessors, and from then on the next kAhead are loaded while the last are multiplied.
template <class Unit, int RT, int NT, bool kBf16, int kAhead>
__global__ void __launch_bounds__(kWarps * 32) matmul_kernel(Parts parts, Input in, int n_units, int first_token) {
  start_dependents();
  int which = 0;
  while (which + 1 < parts.n && int(blockIdx.x) >= parts.part[which + 1].first_block) ++which;
  const Part part = parts.part[which];
  const int first_tile = (blockIdx.x - part.first_block) * RT;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int n_tiles = (part.rows + kTileRows - 1) / kTileRows;
  const std::byte* tile[RT];
#pragma unroll
  for (int r = 0; r < RT; ++r) tile[r] = part.units + int64_t{min(first_tile + r, n_tiles - 1)} * n_units * Unit::kBytes;

  using Held = typename Unit::Held;
  const auto load = [&](Held (&held)[kAhead][RT], int base) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int unit = min(base + a * kWarps, n_units - 1);
#pragma unroll
      for (int r = 0; r < RT; ++r) held[a][r] = Unit::load(tile[r] + int64_t{unit} * Unit::kBytes, lane);
    }
  };
  float acc[RT][NT][4];
#pragma unroll
  for (int r = 0; r < RT; ++r)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[r][n][i] = 0;
  const auto multiply = [&](const Held (&held)[kAhead][RT], int base) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int unit = base + a * kWarps;
      if (unit >= n_units) break;
      uint32_t b[NT][8];
#pragma unroll
      for (int n = 0; n < NT; ++n) load_b<Unit, kBf16>(b[n], in, first_token + n * 8 + g, unit, q);
#pragma unroll
      for (int r = 0; r < RT; ++r) Unit::multiply(acc[r], held[a][r], b);
    }
  };

  Held one[kAhead][RT], other[kAhead][RT];
  constexpr int kStride = kWarps * kAhead;
  load(one, warp);
  await_predecessors();
  for (int base = warp; base < n_units; base += 2 * kStride) {
    if (base + kStride < n_units) load(other, base + kStride);
    multiply(one, base);
    if (base + kStride >= n_units) break;
    if (base + 2 * kStride < n_units) load(one, base + 2 * kStride);
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
      const int row = (first_tile + r) * kTileRows + e % 16, token = first_token + e / 16;
      if (row >= part.rows || token >= in.n_tokens) continue;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[w][e % 16][e / 16];
      sum = __fmul_rn(sum, part.scale);                                     // never fused with the addition: every kernel of this arithmetic rounds here
      part.out[token * part.out_stride + row] = part.bias ? __fadd_rn(sum, part.bias[row]) : sum;
    }
  }
}

__global__ void to_bf16_kernel(uint32_t* out, int64_t out_stride, Tensor x) {
  follow();
  const int t = blockIdx.y, pair = blockIdx.x * blockDim.x + threadIdx.x;
  if (pair * 4 >= out_stride) return;
  const float* row = reinterpret_cast<const float*>(x.data + t * x.stride);
  out[t * (out_stride / 4) + pair] = pack_bf16(2 * pair < x.cols ? row[2 * pair] : 0.0f, 2 * pair + 1 < x.cols ? row[2 * pair + 1] : 0.0f);
}

template <class Unit, int RT, int NT, bool kBf16, int kAhead>
void launch(Parts parts, const Input& in, const Launch& l) {
  int n_blocks = 0;
  for (int i = 0; i < parts.n; ++i) {
    parts.part[i].first_block = n_blocks;
    parts.part[i].scale *= Unit::kFactor;
    n_blocks += (parts.part[i].rows + kTileRows * RT - 1) / (kTileRows * RT);
  }
  const int n_units = (in.cols + kUnit - 1) / kUnit;
  for (int first = 0; first < in.n_tokens; first += NT * 8)
    launch_kernel(matmul_kernel<Unit, RT, NT, kBf16, kAhead>, n_blocks, kWarps * 32, 0, l.stream, parts, in, n_units, first);
}

template <class Unit>
void by_tokens(const Parts& parts, Input in, const Tensor& x, const Launch& l) {
  constexpr int kDeep = Unit::kBytes >= 2048 ? 1 : Unit::kBytes >= 1024 ? 2 : 4;      // twice 64 bytes of weights in flight a lane
  if (in.n_tokens <= 8) return launch<Unit, 1, 1, false, kDeep>(parts, in, l);
  const int64_t stride = (in.cols + kUnit - 1) / kUnit * kUnit * 2;
  launch_kernel(to_bf16_kernel, dim3((stride / 4 + 255) / 256, in.n_tokens), 256, 0, l.stream, reinterpret_cast<uint32_t*>(l.matmul_scratch), stride, x);
  in.x = l.matmul_scratch;
  in.stride = stride;
  if (in.n_tokens <= 16) return launch<Unit, 1, 2, true, kDeep>(parts, in, l);
  if (in.n_tokens <= 32) return launch<Unit, 2, 4, true, 1>(parts, in, l);
  launch<Unit, 2, 8, true, 1>(parts, in, l);
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

void matmul(const Matmul& op, const Launch& l) {
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
    Parts parts{};
    Matmul alike{.x = op.x};                                                 // the weights of one format
    for (int j = i; j < 3; ++j) {
      const Weight* w = op.w[j];
      if (!w || done[j] || w->format != first.format || w->arithmetic.x != first.arithmetic.x) continue;
      done[j] = true;
      alike.out[j] = op.out[j], alike.w[j] = w, alike.bias[j] = op.bias[j];
      parts.part[parts.n++] = {w->packed.data, op.out[j].f32(), op.bias[j].data ? op.bias[j].f32() : nullptr, op.out[j].stride / 4, int(w->rows), 0, w->scale};
    }
    if (takes_few_tokens(alike, l)) {
      matmul_few_tokens(alike, {}, l);
      continue;
    }
    if (op.x.rows >= kGemmFrom) {
      GemmParts many{.part = {}, .n = parts.n};
      for (int j = 0; j < parts.n; ++j) many.part[j] = {parts.part[j].units, parts.part[j].out, parts.part[j].bias, parts.part[j].out_stride, parts.part[j].rows, 0, parts.part[j].scale};
      if (gemm_wgmma(first.format, many, op.x, l)) continue;
    }
    const Input in{op.x.data, op.x.stride, int(op.x.rows), int(op.x.cols)};
    switch (first.format) {
      case FormatId::nvfp4: by_tokens<Nvfp4Unit>(parts, in, op.x, l); break;
      case FormatId::q8_0: by_tokens<Q8Unit>(parts, in, op.x, l); break;
      case FormatId::q4_0: by_tokens<Q4Unit>(parts, in, op.x, l); break;
      default: by_tokens<Bf16Unit>(parts, in, op.x, l); break;
    }
  }
}

}  // namespace ridge::cuda
