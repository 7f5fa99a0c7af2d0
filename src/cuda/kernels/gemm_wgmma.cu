// Matmul for many tokens on sm_90a. A block multiplies 128 rows of a weight with 192 tokens: two warpgroups take 64 rows each as operand A, decoded in registers
// from the same units that serve one token; tokens are operand B in shared memory. Four warps keep the bulk copies going, a few units ahead; blocks stay and walk
// over tiles. A bulk copy takes its warp some 60 cycles to ask for, one lane after the other: nine by one warp nearly fill the 770 cycles of a unit, and results that
// leave through shared memory by 192 copies of a row cost more than plain stores from registers do. Pairs of blocks that share the tokens' copy by multicast were
// slower, too: 317 TFLOP/s instead of 550.
//
// The arithmetic is that of the kernels for few tokens: unit u belongs to chain u mod 8, a chain adds up in order from zero, and the chains are added in order.
// So the units come in the order 0 8 16 .. 1 9 17 .., and each chain's end costs one addition per output (3 % of the tensor cores' time at 4096 inputs).
//
// The input is copied to bf16 once, already in tiles [token block][unit][192 tokens x 64 inputs], swizzled, inputs in the order of the units' operands, so that a
// tile is one contiguous copy and no tensor map is needed.
#include <algorithm>

#include "cuda/kernels/gemm.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/operand.h"
#include "cuda/lib/wgmma.h"

namespace ridge::cuda {
namespace {

constexpr int kRows = 128, kTokens = kGemmTokens, kChains = 8, kConsumers = 2, kThreads = 128 * (kConsumers + 1);
constexpr int kTilesOfBlock = kRows / kTileRows, kInputBytes = kTokens * 128;
constexpr int kGroup = 16;                                                  // row blocks that run side by side over all tokens before the next ones

template <class Unit>
constexpr int kWeightBytes = kTilesOfBlock * Unit::kBytes;
template <class Unit>
constexpr int kStages = 225 * 1024 / (kWeightBytes<Unit> + kInputBytes);
template <class Unit>
constexpr int kSharedBytes = 1024 + kStages<Unit> * (kWeightBytes<Unit> + kInputBytes);

// Chunk c of a unit: k 8 (c % 2) .. + 7 of operand c / 2, which are inputs of four lane quarters.
template <bool kHalves>
__global__ void tile_input_kernel(uint4* tiles, Tensor x, int n_units) {
  follow();
  const int token = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, unit = i / 8, c = i % 8, t = c / 2;
  if (unit >= n_units) return;
  const float* row = reinterpret_cast<const float*>(x.data + token * x.stride);
  uint32_t v[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int64_t k = unit * kUnit + (kHalves ? t / 2 * 32 + 8 * q + t % 2 * 4 : 16 * q + 4 * t) + 2 * (c % 2);
    v[q] = token < x.rows ? pack_bf16(k < x.cols ? row[k] : 0.0f, k + 1 < x.cols ? row[k + 1] : 0.0f) : 0;
  }
  std::byte* tile = reinterpret_cast<std::byte*>(tiles) + (int64_t{token / kTokens} * n_units + unit) * kInputBytes;
  *reinterpret_cast<uint4*>(tile + swizzled(token % kTokens, c)) = {v[0], v[1], v[2], v[3]};
}

struct Grid { int n_units, n_row_blocks, n_token_blocks, n_tokens; };

// Tile i: row blocks in groups, so that what runs at the same time reads few rows and few tokens.
struct Place { int row_block, token_block; };
__device__ Place place(int i, const Grid& grid) {
  const int per_group = kGroup * grid.n_token_blocks, group = i / per_group, in_group = i % per_group, wide = min(kGroup, grid.n_row_blocks - group * kGroup);
  return {group * kGroup + in_group % wide, in_group / wide};
}
__device__ const GemmPart& part_of(const GemmParts& parts, int row_block) {
  int which = 0;
  while (which + 1 < parts.n && row_block >= parts.part[which + 1].first_block) ++which;
  return parts.part[which];
}

template <class Unit>
__global__ void __launch_bounds__(kThreads, 1) gemm_kernel(const __grid_constant__ GemmParts parts, const std::byte* x, Grid grid, int n_tiles) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kDepth = kStages<Unit>;
  extern __shared__ std::byte raw_shared[];
  __shared__ Barrier full[kDepth], empty[kDepth];
  std::byte* inputs = raw_shared + (-shared_address(raw_shared) & 1023);    // [stage][token][128 bytes]
  std::byte* weights = inputs + kDepth * kInputBytes;                       // [stage][row tile][unit]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;
  start_dependents();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kDepth; ++s) init_barrier(&full[s], 1), init_barrier(&empty[s], kConsumers * 4);
    publish_barriers();
  }
  __syncthreads();
  int stage = 0;
  uint32_t phase = 0;
  const auto advance = [&] {
    if (++stage == kDepth) stage = 0, phase ^= 1;
  };

  if (group == kConsumers) {
    shrink_registers<40>();
    if (lane == 0) {
      await_predecessors();
      const int worker = warp % 4;                                          // of four, each with its row tiles; the first has the tokens, too
      constexpr int kOwn = kTilesOfBlock / 4;
      for (int i = blockIdx.x; i < n_tiles; i += gridDim.x) {
        const Place at = place(i, grid);
        const GemmPart& part = part_of(parts, at.row_block);
        const int first_tile = (at.row_block - part.first_block) * kTilesOfBlock + worker * kOwn, last_tile = (part.rows + kTileRows - 1) / kTileRows - 1;
        const std::byte* units[kOwn];
#pragma unroll
        for (int t = 0; t < kOwn; ++t) units[t] = part.units + int64_t{min(first_tile + t, last_tile)} * grid.n_units * Unit::kBytes;
        const std::byte* tokens = x + int64_t{at.token_block} * grid.n_units * kInputBytes;
        for (int chain = 0; chain < kChains; ++chain)
          for (int u = chain; u < grid.n_units; u += kChains) {
            await(&empty[stage], phase ^ 1);
            if (worker == 0) {
              arrive_expecting(&full[stage], kWeightBytes<Unit> + kInputBytes);
              copy_bulk(inputs + stage * kInputBytes, tokens + int64_t{u} * kInputBytes, kInputBytes, &full[stage]);
            }
#pragma unroll
            for (int t = 0; t < kOwn; ++t)
              copy_bulk(weights + stage * kWeightBytes<Unit> + (worker * kOwn + t) * Unit::kBytes, units[t] + int64_t{u} * Unit::kBytes, Unit::kBytes, &full[stage]);
            advance();
          }
      }
    }
  } else {
    grow_registers<232>();
    const int g = lane / 4, q = lane % 4;
    for (int i = blockIdx.x; i < n_tiles; i += gridDim.x) {
      float acc[kTokens / 2], total[kTokens / 2];
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) acc[j] = 0, total[j] = 0;
      for (int chain = 0; chain < kChains; ++chain) {
        for (int u = chain; u < grid.n_units; u += kChains) {
          await(&full[stage], phase);
          uint32_t a[4][4];
          Operands<Unit>::load(a, weights + stage * kWeightBytes<Unit> + warp * Unit::kBytes, lane);
          const uint64_t b = wgmma_tile(inputs + stage * kInputBytes);
          wgmma_fence();
#pragma unroll
          for (int t = 0; t < 4; ++t) wgmma<__nv_bfloat16, false>(acc, a[t], b + 2 * t);
          wgmma_commit();
          wgmma_await<0>();
          if (lane == 0) arrive(&empty[stage]);
          advance();
        }
        hold(acc);
#pragma unroll
        for (int j = 0; j < kTokens / 2; ++j) total[j] += acc[j], acc[j] = 0;
      }
      const Place at = place(i, grid);
      const GemmPart& part = part_of(parts, at.row_block);
      const int row = (at.row_block - part.first_block) * kRows + warp * kTileRows + g, first_token = at.token_block * kTokens + 2 * q;
      const int n_left = grid.n_tokens - first_token;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (row + 8 * r >= part.rows) break;
#pragma unroll
        for (int j = 0; j < kTokens / 8; ++j) total[4 * j + 2 * r] = __fmul_rn(total[4 * j + 2 * r], part.scale), total[4 * j + 2 * r + 1] = __fmul_rn(total[4 * j + 2 * r + 1], part.scale);
        if (part.bias) {
          const float bias = part.bias[row + 8 * r];
#pragma unroll
          for (int j = 0; j < kTokens / 8; ++j) total[4 * j + 2 * r] = __fadd_rn(total[4 * j + 2 * r], bias), total[4 * j + 2 * r + 1] = __fadd_rn(total[4 * j + 2 * r + 1], bias);
        }
        float* out = part.out + int64_t{first_token} * part.out_stride + row + 8 * r;
        // A branch for each store would cost more than the stores: 7 us a tile instead of 2.
        if (n_left >= kTokens) {
#pragma unroll
          for (int j = 0; j < kTokens / 8; ++j, out += 8 * part.out_stride) out[0] = total[4 * j + 2 * r], out[part.out_stride] = total[4 * j + 2 * r + 1];
        } else {
#pragma unroll
          for (int j = 0; j < kTokens / 8; ++j, out += 8 * part.out_stride) {
            if (8 * j < n_left) out[0] = total[4 * j + 2 * r];
            if (8 * j + 1 < n_left) out[part.out_stride] = total[4 * j + 2 * r + 1];
          }
        }
      }
    }
  }
#endif
}

template <class Unit>
void launch(GemmParts parts, const Tensor& x, const Launch& l) {
  const int n_units = int((x.cols + kUnit - 1) / kUnit), n_token_blocks = int((x.rows + kTokens - 1) / kTokens);
  launch_kernel(tile_input_kernel<Unit::kHalves>, dim3((n_units * 8 + 255) / 256, n_token_blocks * kTokens), 256, 0, l.stream, reinterpret_cast<uint4*>(l.matmul_scratch), x, n_units);
  int n_row_blocks = 0;
  for (int i = 0; i < parts.n; ++i) {
    parts.part[i].first_block = n_row_blocks;
    parts.part[i].scale *= Unit::kFactor;
    n_row_blocks += (parts.part[i].rows + kRows - 1) / kRows;
  }
  const int n_tiles = n_row_blocks * n_token_blocks;
  const auto kernel = gemm_kernel<Unit>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<Unit>);
  launch_kernel(kernel, std::min(n_tiles, l.n_sms), kThreads, kSharedBytes<Unit>, l.stream, parts, static_cast<const std::byte*>(l.matmul_scratch),
                Grid{n_units, n_row_blocks, n_token_blocks, int(x.rows)}, n_tiles);
}

}  // namespace

bool gemm_wgmma(FormatId format, GemmParts parts, const Tensor& x, const Launch& l) {
  if (!kHasSm90a || l.compute_capability != 90) return false;
  switch (format) {
    case FormatId::bf16: launch<Bf16Unit>(parts, x, l); return true;
    case FormatId::nvfp4: launch<Nvfp4Unit>(parts, x, l); return true;
    default: return false;
  }
}

}  // namespace ridge::cuda
