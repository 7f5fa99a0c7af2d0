// Matmul for many tokens on sm_90a. A block multiplies 128 rows of a weight with 192 tokens: two warpgroups take 64 rows each as operand A, decoded in registers
// from the same units that serve one token; tokens are operand B in shared memory. Four warps keep the bulk copies going, a few units ahead; blocks stay and walk
// over tiles. A bulk copy takes its warp some 60 cycles to ask for, one lane after the other: nine by one warp nearly fill the 770 cycles of a unit, and results that
// leave through shared memory by 192 copies of a row cost more than plain stores from registers do. Pairs of blocks that share the tokens' copy by multicast were
// slower, too: 317 TFLOP/s instead of 550.
//
// The arithmetic is that of the kernels for few tokens: unit u belongs to chain u mod 8, a chain adds up in order from zero, and the chains are added in order.
// So the units come in the order 0 8 16 .. 1 9 17 .., and each chain's end costs one addition per output (3 % of the tensor cores' time at 4096 inputs).
//
// With an activation, a block has 64 rows of the gate and the same 64 of the up projection, one for each warpgroup; they exchange halves of their results through
// shared memory, and what leaves is one tile of the next matmul's input (a quarter of the bytes, and no pass over 8192 x 12288 numbers in between).
#include <algorithm>

#include "cuda/kernels/gemm.h"
#include "cuda/lib/activation.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/operand.h"
#include "cuda/lib/wgmma.h"

namespace ridge::cuda {
namespace {

constexpr int kRows = 128, kTokens = kTileTokens, kChains = 8, kConsumers = 2, kThreads = 128 * (kConsumers + 1);
constexpr int kTilesOfBlock = kRows / kTileRows;
constexpr int kGroup = 16;                                                  // row blocks that run side by side over all tokens before the next ones
constexpr int kPlain = -1;                                                  // no activation
constexpr int kSwapStride = 64 + 4, kSwapBytes = 2 * (kTokens / 2) * kSwapStride * 4;         // floats a token, so that lanes fall into different banks

template <class Unit>
constexpr int kWeightBytes = kTilesOfBlock * Unit::kBytes;
template <class Unit, int kAct>
constexpr int kStages = (225 * 1024 - (kAct == kPlain ? 0 : kSwapBytes)) / (kWeightBytes<Unit> + kTileBytes);
template <class Unit, int kAct>
constexpr int kSharedBytes = 1024 + kStages<Unit, kAct> * (kWeightBytes<Unit> + kTileBytes) + (kAct == kPlain ? 0 : kSwapBytes);

// A thread copies two inputs of four lane quarters: one chunk.
__global__ void tile_input_kernel(std::byte* tiles, Tensor x, int n_units) {
  follow();
  const int token = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, unit = i / 8, c = i % 8;
  if (unit >= n_units) return;
  const float* row = reinterpret_cast<const float*>(x.data + token * x.stride);
  uint32_t v[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int64_t k = unit * kUnit + 16 * q + 2 * c;
    v[q] = pack_bf16(k < x.cols ? row[k] : 0.0f, k + 1 < x.cols ? row[k + 1] : 0.0f);
  }
  *reinterpret_cast<uint4*>(tiles + tile_place(token, unit * kUnit + 2 * c, n_units)) = {v[0], v[1], v[2], v[3]};
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

// Scaled, with a bias where there is one: every kernel of this arithmetic rounds twice.
__device__ float finished(float sum, float scale, const float* bias) {
  const float v = __fmul_rn(sum, scale);
  return bias ? __fadd_rn(v, *bias) : v;
}

template <class Unit, int kAct>
__global__ void __launch_bounds__(kThreads, 1) gemm_kernel(const __grid_constant__ GemmParts parts, const std::byte* x, std::byte* out_tiles, Grid grid, int n_tiles) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kDepth = kStages<Unit, kAct>;
  constexpr bool kPairs = kAct != kPlain;
  extern __shared__ std::byte raw_shared[];
  __shared__ Barrier full[kDepth], empty[kDepth];
  std::byte* inputs = raw_shared + (-shared_address(raw_shared) & 1023);    // [stage][token][128 bytes]
  std::byte* weights = inputs + kDepth * kTileBytes;                       // [stage][row tile][unit]
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
        const GemmPart& part = kPairs ? parts.part[worker / 2] : part_of(parts, at.row_block);
        const int first_tile = kPairs ? at.row_block * 4 + worker % 2 * kOwn : (at.row_block - part.first_block) * kTilesOfBlock + worker * kOwn;
        const int last_tile = (part.rows + kTileRows - 1) / kTileRows - 1;
        const std::byte* units[kOwn];
#pragma unroll
        for (int t = 0; t < kOwn; ++t) units[t] = part.units + int64_t{min(first_tile + t, last_tile)} * grid.n_units * Unit::kBytes;
        const std::byte* tokens = x + int64_t{at.token_block} * grid.n_units * kTileBytes;
        for (int chain = 0; chain < kChains; ++chain)
          for (int u = chain; u < grid.n_units; u += kChains) {
            await(&empty[stage], phase ^ 1);
            if (worker == 0) {
              arrive_expecting(&full[stage], kWeightBytes<Unit> + kTileBytes);
              copy_bulk(inputs + stage * kTileBytes, tokens + int64_t{u} * kTileBytes, kTileBytes, &full[stage]);
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
          const uint64_t b = wgmma_tile(inputs + stage * kTileBytes);
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
      if constexpr (kPairs) {
        float* swap = reinterpret_cast<float*>(weights + kDepth * kWeightBytes<Unit>);      // [of which warpgroup][token of 96][row]
        const GemmPart& part = parts.part[group];
        const int row = warp % 4 * kTileRows + g;                            // of 64
        const float* bias = part.bias ? part.bias + at.row_block * 64 + row : nullptr;
        if (threadIdx.x == 0) await_stores_read();                           // the tile before has left
        sync_threads_of(1, 256);
        float mine[kTokens / 4];                                             // of the warpgroup's own half of the tokens, as `total` has them
#pragma unroll
        for (int j = 0; j < kTokens / 4; ++j) {
          const int r = j / 2 % 2, token = j / 4 * 8 + 2 * q + j % 2;
          const float low = finished(total[j], part.scale, bias ? bias + 8 * r : nullptr), high = finished(total[kTokens / 4 + j], part.scale, bias ? bias + 8 * r : nullptr);
          mine[j] = group ? high : low;
          swap[(group * (kTokens / 2) + token) * kSwapStride + row + 8 * r] = group ? low : high;
        }
        sync_threads_of(1, 256);
#pragma unroll
        for (int j = 0; j < kTokens / 4; ++j) {
          const float other = swap[((1 - group) * (kTokens / 2) + j / 4 * 8 + 2 * q + j % 2) * kSwapStride + row + 8 * (j / 2 % 2)];
          mine[j] = act<ActKind(kAct)>(group ? other : mine[j]) * (group ? mine[j] : other);
        }
        sync_threads_of(1, 256);                                             // from here on the memory is the tile that leaves
        std::byte* tile = reinterpret_cast<std::byte*>(swap);
#pragma unroll
        for (int j = 0; j < kTokens / 4; j += 2) {
          // Rows 2i and 2i + 1 lie in neighbouring lanes and share a word: one lane writes it for the first of two tokens, the other for the second.
          const float received = __shfl_xor_sync(0xffffffffu, g % 2 ? mine[j] : mine[j + 1], 4);
          const uint32_t word = g % 2 ? pack_bf16(received, mine[j + 1]) : pack_bf16(mine[j], received);
          const int token = group * (kTokens / 2) + j / 4 * 8 + 2 * q + g % 2, in_unit = row + 8 * (j / 2 % 2);
          *reinterpret_cast<uint32_t*>(tile + tile_place(token, in_unit & ~1, 1)) = word;
        }
        fence_for_wgmma();
        sync_threads_of(1, 256);
        if (threadIdx.x == 0) {
          store_bulk(out_tiles + (int64_t{at.token_block} * grid.n_row_blocks + at.row_block) * kTileBytes, tile, kTileBytes);
          commit_stores();
        }
      } else {
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
    if (kPairs && threadIdx.x == 0) await_stores();
  }
#endif
}

template <class Unit, int kAct>
void launch(GemmParts parts, const Tensor& x, std::byte* tiles, bool is_tiled, std::byte* out_tiles, const Launch& l) {
  const int n_units = int((x.cols + kUnit - 1) / kUnit), n_token_blocks = int((x.rows + kTokens - 1) / kTokens);
  if (!is_tiled) launch_kernel(tile_input_kernel, dim3((n_units * 8 + 255) / 256, x.rows), 256, 0, l.stream, tiles, x, n_units);
  int n_row_blocks = 0;
  for (int i = 0; i < parts.n; ++i) {
    parts.part[i].first_block = n_row_blocks;
    parts.part[i].scale *= Unit::kFactor;
    n_row_blocks += (parts.part[i].rows + kRows - 1) / kRows;
  }
  if (kAct != kPlain) n_row_blocks = parts.part[0].rows / 64;
  const int n_tiles = n_row_blocks * n_token_blocks;
  const auto kernel = gemm_kernel<Unit, kAct>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<Unit, kAct>);
  launch_kernel(kernel, std::min(n_tiles, l.n_sms), kThreads, kSharedBytes<Unit, kAct>, l.stream, parts, static_cast<const std::byte*>(tiles), out_tiles,
                Grid{n_units, n_row_blocks, n_token_blocks, int(x.rows)}, n_tiles);
}

GemmPart part_from(const Matmul& op, int i) {
  const Weight& w = *op.w[i];
  return {w.packed.data, op.out[i].f32(), op.bias[i].data ? op.bias[i].f32() : nullptr, op.out[i].stride / 4, int(w.rows), 0, w.scale};
}

}  // namespace

bool gemm_takes(const Matmul& op, const Launch& l) {
  if (!kHasSm90a || l.compute_capability != 90 || op.x.rows < kGemmFrom) return false;
  for (const Weight* w : op.w)
    if (w && (w->arithmetic.x == FormatId::f32 || (w->format != FormatId::bf16 && w->format != FormatId::nvfp4))) return false;
  return true;
}

bool gemm_activates(const Matmul& op, const Activate& a, const Launch& l) {
  return gemm_takes(op, l) && op.w[0] && op.w[1] && !op.w[2] && op.w[0]->format == op.w[1]->format && op.w[0]->rows == op.w[1]->rows && op.w[0]->rows % 64 == 0 &&
         a.gate.data == op.out[0].data && a.up.data == op.out[1].data && a.out.cols == op.w[0]->rows && (a.kind == ActKind::silu || a.kind == ActKind::gelu_tanh);
}

void gemm(FormatId format, const GemmParts& parts, const Tensor& x, std::byte* tiles, bool is_tiled, const Launch& l) {
  if (format == FormatId::nvfp4) launch<Nvfp4Unit, kPlain>(parts, x, tiles, is_tiled, nullptr, l);
  else launch<Bf16Unit, kPlain>(parts, x, tiles, is_tiled, nullptr, l);
}

void gemm_activate(std::byte* out_tiles, const Matmul& op, ActKind kind, std::byte* tiles, bool is_tiled, const Launch& l) {
  const GemmParts parts{.part = {part_from(op, 0), part_from(op, 1), {}}, .n = 2};
  const bool silu = kind == ActKind::silu;
  constexpr int kSilu = int(ActKind::silu), kGelu = int(ActKind::gelu_tanh);
  if (op.w[0]->format == FormatId::nvfp4) silu ? launch<Nvfp4Unit, kSilu>(parts, op.x, tiles, is_tiled, out_tiles, l) : launch<Nvfp4Unit, kGelu>(parts, op.x, tiles, is_tiled, out_tiles, l);
  else silu ? launch<Bf16Unit, kSilu>(parts, op.x, tiles, is_tiled, out_tiles, l) : launch<Bf16Unit, kGelu>(parts, op.x, tiles, is_tiled, out_tiles, l);
}

}  // namespace ridge::cuda
