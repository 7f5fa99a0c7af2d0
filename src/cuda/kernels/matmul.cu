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
      for (int r = 0; r < RT; ++r) Unit::multiply(acc[r], held[a][r], b, lane);
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

// 1 to 8 tokens: the blocks stay (a few per multiprocessor) and walk over row tiles; the input lies in shared memory in bf16, so that nothing but weights
// comes through the loads, and those of the next tile are on their way while this one is summed.
// (Loading the input per unit from the second-level cache instead cost 0.3 us a unit: 6.6 us for a matrix of 2.4 MB.)
template <class Unit, int kAhead>
__global__ void __launch_bounds__(kWarps * 32) few_tokens_kernel(Parts parts, Input in, int n_units, int n_tiles, int x_stride) {
  extern __shared__ uint4 shared_x[];                                        // [token][x_stride bytes]
  __shared__ float sums[2][kWarps][16][9];
  start_dependents();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int groups = (n_units + kWarps * kAhead - 1) / (kWarps * kAhead);    // loads of kAhead units a warp takes for a tile

  using Held = typename Unit::Held;
  const auto tile_start = [&](int tile) {
    int which = 0;
    while (which + 1 < parts.n && tile >= parts.part[which + 1].first_block) ++which;
    return parts.part[which].units + int64_t{tile - parts.part[which].first_block} * n_units * Unit::kBytes;
  };
  const auto load = [&](Held (&held)[kAhead], const std::byte* start, int group) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) held[a] = Unit::load(start + int64_t{min((group * kAhead + a) * kWarps + warp, n_units - 1)} * Unit::kBytes, lane);
  };

  int tile = blockIdx.x, group = 0;
  const std::byte* start = tile_start(tile);
  Held now[kAhead];
  load(now, start, 0);
  await_predecessors();
  // The input, four numbers a thread at a time; padding is zero.
  const int quads = n_units * kUnit / 4;
  for (int i = threadIdx.x; i < quads * in.n_tokens; i += kWarps * 32) {
    const int token = i / quads, k = i % quads * 4;
    const float* x = reinterpret_cast<const float*>(in.x + token * in.stride) + k;
    float4 v{0, 0, 0, 0};
    if (k + 4 <= in.cols) v = *reinterpret_cast<const float4*>(x);
    else if (k < in.cols) v = {x[0], k + 1 < in.cols ? x[1] : 0.0f, k + 2 < in.cols ? x[2] : 0.0f, 0.0f};
    *reinterpret_cast<uint2*>(reinterpret_cast<std::byte*>(shared_x) + token * x_stride + 2 * k) = {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)};
  }
  __syncthreads();

  const std::byte* my_x = reinterpret_cast<const std::byte*>(shared_x) + g * x_stride;
  float acc[1][4] = {{0, 0, 0, 0}};
  int parity = 0;
  while (tile < n_tiles) {
    // What comes after this group: the next of the tile, or the first of the block's next tile.
    const bool last_of_tile = group + 1 == groups;
    const int next_tile = last_of_tile ? tile + gridDim.x : tile, next_group = last_of_tile ? 0 : group + 1;
    const std::byte* next_start = last_of_tile && next_tile < n_tiles ? tile_start(next_tile) : start;
    Held next[kAhead];
    if (next_tile < n_tiles) load(next, next_start, next_group);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int unit = (group * kAhead + a) * kWarps + warp;
      if (unit >= n_units) break;
      uint32_t b[1][8] = {{0, 0, 0, 0, 0, 0, 0, 0}};
      if (g < in.n_tokens) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint4 v = *reinterpret_cast<const uint4*>(my_x + 2 * (unit * kUnit + lane_input<Unit::kHalves>(q, h)));
          b[0][4 * h] = v.x, b[0][4 * h + 1] = v.y, b[0][4 * h + 2] = v.z, b[0][4 * h + 3] = v.w;
        }
      }
      Unit::multiply(acc, now[a], b, lane);
    }
    if (last_of_tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[parity][warp][g + (i >= 2 ? 8 : 0)][2 * q + i % 2] = acc[0][i], acc[0][i] = 0;
      __syncthreads();                                                       // one barrier a tile: the other half of `sums` is free by then
      if (threadIdx.x < 16 * 8) {
        int which = 0;
        while (which + 1 < parts.n && tile >= parts.part[which + 1].first_block) ++which;
        const Part& part = parts.part[which];
        const int row = (tile - part.first_block) * kTileRows + threadIdx.x % 16, token = threadIdx.x / 16;
        if (row < part.rows && token < in.n_tokens) {
          float sum = 0;
#pragma unroll
          for (int w = 0; w < kWarps; ++w) sum += sums[parity][w][threadIdx.x % 16][token];
          sum = __fmul_rn(sum, part.scale);
          part.out[token * part.out_stride + row] = part.bias ? __fadd_rn(sum, part.bias[row]) : sum;
        }
      }
      parity ^= 1;
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) now[a] = next[a];
    tile = next_tile, group = next_group, start = next_start;
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

template <class Unit, int kAhead>
void launch_few(Parts parts, const Input& in, const Launch& l) {
  int n_tiles = 0;
  for (int i = 0; i < parts.n; ++i) {
    parts.part[i].first_block = n_tiles;
    parts.part[i].scale *= Unit::kFactor;
    n_tiles += (parts.part[i].rows + kTileRows - 1) / kTileRows;
  }
  const int n_units = (in.cols + kUnit - 1) / kUnit;
  const int x_stride = n_units * kUnit * 2 + 16;                             // 16: rows of tokens start in different banks
  const int bytes = x_stride * in.n_tokens;
  const auto kernel = few_tokens_kernel<Unit, kAhead>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  int per_sm = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, kWarps * 32, bytes);
  // As few blocks as finish in the same number of rounds.
  const int most = std::max(1, per_sm * l.n_sms), rounds = (n_tiles + most - 1) / most;
  launch_kernel(kernel, (n_tiles + rounds - 1) / rounds, kWarps * 32, bytes, l.stream, parts, in, n_units, n_tiles, x_stride);
}

template <class Unit>
void by_tokens(const Parts& parts, Input in, const Tensor& x, const Launch& l) {
  constexpr int kDeep = Unit::kBytes >= 2048 ? 1 : Unit::kBytes >= 1024 ? 2 : 4;      // twice 64 bytes of weights in flight a lane
  if (int64_t{in.n_tokens} * ((in.cols + kUnit - 1) / kUnit * kUnit * 2 + 16) <= l.max_shared_bytes && in.n_tokens <= 8) return launch_few<Unit, kDeep>(parts, in, l);
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
    for (int j = i; j < 3; ++j) {
      const Weight* w = op.w[j];
      if (!w || done[j] || w->format != first.format || w->arithmetic.x != first.arithmetic.x) continue;
      done[j] = true;
      parts.part[parts.n++] = {w->packed.data, op.out[j].f32(), op.bias[j].data ? op.bias[j].f32() : nullptr, op.out[j].stride / 4, int(w->rows), 0, w->scale};
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
