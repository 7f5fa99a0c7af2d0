// Matmul for many tokens on sm_90a. A block multiplies 128 rows of a weight with 192 tokens (or 184, 128, 64): two warpgroups take 64 rows each as operand A, decoded in registers
// from the same units that serve one token, or in bf16 from shared memory as they lie; tokens are operand B in shared memory. Four warps keep the bulk copies going, a few units ahead, one those of tokens;
// blocks stay and walk over tiles. A bulk copy takes its warp some 60 cycles to ask for, one lane after the other: nine by one warp nearly fill the 770 cycles of a unit, and results that
// leave through shared memory by 192 copies of a row cost more than plain stores from registers do.
//
// In bf16 two blocks are a cluster that shares its tokens: each asks for half of them, for both. A prompt of 8192 tokens takes 1.9 % less time with it. Power is what it saves:
// copies and multiplications alone, for half a second, without ends of chains and tiles, give 737 TFLOP/s instead of 727 at 700 W (and 709 instead of 699 with ends of chains). (A block's arrival at the other's barrier must not
// say `.release.cluster`: it then waits for all of memory, and 727 become 560.) In nvfp4, where blocks decode at their own pace, pairs that wait for each other take 10 % more time.
//
// A warpgroup decodes a unit's four operands and then asks for its products, while the other warpgroup's are made. (One by one, with three products waiting while the next operand is
// decoded, blocks of 64 tokens took 12 % longer, of 128 1 to 5 %; two by two half of that. Taking turns at it is 1 to 2 % slower than the way they fall.) In bf16 the products of one unit
// wait while the next is awaited. By the counters (8192 tokens, bf16, before tokens were shared) the tensor cores are busy 75 % of the time for
// gate and up, 78 to 81 % for o and qkv and 88 % for down, at clocks of 1.70, 1.68, 1.60 and 1.57 GHz: what is left is the ends of tiles, and power. A tile's results that
// leave bit by bit between the first units of the next tile, from the same registers, changed nothing for plain outputs and cost 15 % with an activation.
//
// The arithmetic is that of the kernels for few tokens: unit u belongs to chain u mod 8, a chain adds up in order from zero, and the chains are added in order.
// So the units come in the order 0 8 16 .. 1 9 17 .., and each chain's end costs one addition per output (3 % of the tensor cores' time at 4096 inputs).
//
// With an activation, a block has 64 rows of the gate and the same 64 of the up projection, one for each warpgroup; they exchange halves of their results through
// shared memory, and what leaves is one tile of the next matmul's input (a quarter of the bytes, and no pass over 8192 x 12288 numbers in between). In bf16 a warp has eight rows of
// both (kJoined), and nothing to exchange: the place for that is one more stage.
//
// Units with scales of their own have sums of their own (gemm_scaled.h), which take so many registers that a block has 128 tokens, or 64.
#pragma once
#include <algorithm>
#include <utility>

#include "cuda/kernels/matmul/gemm_blocks.h"
#include "cuda/kernels/matmul/gemm_scaled.h"
#include "cuda/lib/activation.h"
#include "cuda/lib/cluster.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/tensor_map.h"
#include "cuda/lib/units.h"

namespace ridge::cuda::blocks {

constexpr int kGroup = 16, kTilesOfBlock = kRows / kTileRows, kThreads = 128 * (kConsumers + 1);       // kGroup: row blocks that run side by side over all tokens before the next ones
constexpr int kSwapStride = 64 + 4;                                         // floats a token, so that lanes fall into different banks

// Of a box in which outputs leave, by turns: a tile has an even number of them, for the next one begins with the first turn again.
template <int kTokens>
constexpr int kBoxTokens = kTokens == 64 ? 16 : 24;
template <int kTokens>
constexpr int kBoxBytes = kBoxTokens<kTokens> * 128;
template <class Unit>
constexpr int kWeightBytes = kTilesOfBlock * Unit::kBytes;
template <class Unit>
constexpr int kClusterOf = kHasClusters && kAsItLies<Unit> ? 2 : 1;          // blocks of a cluster, which share their tokens

// What a block needs for the end of its tile.
template <class Unit, GemmEnd kEnd, int kTokens>
constexpr int end_bytes() {
  constexpr int kSwapBytes = kTokens * kSwapStride * 4;
  constexpr int kBoxesBytes = kConsumers * 2 * 2 * kBoxBytes<kTokens>;         // [warpgroup][turn][32 rows]: what leaves as boxes
  static_assert((kTokens + kBoxTokens<kTokens> - 1) / kBoxTokens<kTokens> % 2 == 0);
  if (kEnd == GemmEnd::chains) return 0;
  if (kEnd == GemmEnd::rows) return 1024 + kBoxesBytes;                        // 1024: boxes begin at such
  return kAsItLies<Unit> ? kTokens * 128 : kSwapBytes;
}
template <class Unit, GemmEnd kEnd, int kTokens>
constexpr int kStages = ((blocks_of_sm<Unit>(kEnd, kTokens) == 2 ? 111 : 225) * 1024 - end_bytes<Unit, kEnd, kTokens>()) / (kWeightBytes<Unit> + kTokens * 128);
template <class Unit, GemmEnd kEnd, int kTokens>
constexpr int kSharedBytes = 1024 + kStages<Unit, kEnd, kTokens> * (kWeightBytes<Unit> + kTokens * 128) + end_bytes<Unit, kEnd, kTokens>();

constexpr int kRoomForOne = 116 << 10;                                      // bytes that leave none for a second block

__host__ __device__ constexpr bool is_gated(GemmEnd end) { return end == GemmEnd::silu || end == GemmEnd::gelu_tanh; }
__host__ __device__ constexpr ActKind act_of(GemmEnd end) { return end == GemmEnd::silu ? ActKind::silu : ActKind::gelu_tanh; }

// What a block does at a time: a tile with all its chains, or one chain of a tile.
template <bool kByChain>
struct Item {
  int place, first_chain, end_chain;
  __device__ explicit Item(int i) : place(kByChain ? i / kChains : i), first_chain(kByChain ? i % kChains : 0), end_chain(kByChain ? first_chain + 1 : kChains) {}
};

// Tile i: row blocks in groups, so that what runs at the same time reads few rows and few tokens.
struct Place { int row_block, token_block; };
// A cluster's blocks have neighbouring row blocks; the last of all may be beyond the rows.
template <int kCluster>
__device__ Place place(int i, const Grid& grid) {
  constexpr int kMost = kGroup / kCluster;
  const int per_group = kMost * grid.n_token_blocks, group = i / per_group, in_group = i % per_group, wide = min(kMost, (grid.n_row_blocks + kCluster - 1) / kCluster - group * kMost);
  return {(group * kMost + in_group % wide) * kCluster + int(blockIdx.x) % kCluster, in_group / wide};
}

// Where outputs go, by parts; or the residual stream. The last boxes of a tile may have fewer tokens than the others.
struct Outputs { CUtensorMap of_part[3], last[3]; };

template <class Unit, GemmEnd kEnd, int kTokens>
__global__ void __launch_bounds__(kThreads, blocks_of_sm<Unit>(kEnd, kTokens)) gemm_kernel(const __grid_constant__ GemmParts parts, [[maybe_unused]] const __grid_constant__ Outputs outputs, const std::byte* x, std::byte* out_tiles, float4* chain_sums, Grid grid, int n_items) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kBoxTokens = blocks::kBoxTokens<kTokens>, kBoxBytes = blocks::kBoxBytes<kTokens>;
  constexpr int kDepth = kStages<Unit, kEnd, kTokens>, kInputBytes = kTokens * 128, kCluster = kClusterOf<Unit>;
  constexpr bool kGated = is_gated(kEnd), kByChain = kEnd == GemmEnd::chains, kScaled = Unit::kScales > 0, kJoined = kGated && kAsItLies<Unit>;
  RIDGE_DYNAMIC_SHARED(raw_shared, 1);
  __shared__ Barrier full[kDepth], empty[kDepth];
  [[maybe_unused]] __shared__ float2 factors[kByChain ? 1 : kTokens / 2];        // of a norm before, of two tokens each
  std::byte* inputs = raw_shared + (-shared_address(raw_shared) & 1023);    // [stage][token][128 bytes]
  std::byte* weights = inputs + kDepth * kInputBytes;                      // [stage][row tile][unit]
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0), lane = threadIdx.x % 32, group = warp / 4;     // the compiler sees that a warp agrees on it
  start_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; kEnd == GemmEnd::rows && i < parts.n; ++i) prefetch_map(outputs.of_part[i]);
    for (int s = 0; s < kDepth; ++s) init_barrier(&full[s], 1), init_barrier(&empty[s], kConsumers * 4 * kCluster * kWarpArrivals);
    publish_barriers();
  }
  if (kCluster > 1) arrive_started(), await_cluster();
  else __syncthreads();
  int stage = 0;
  uint32_t phase = 0;
  const auto advance = [&] {
    if (++stage == kDepth) stage = 0, phase ^= 1;
  };
  const auto leave = [&](int s) {
    arrive_as_warp(&empty[s], lane);
    if (lane >= kWarpArrivals) return;
    if (kCluster > 1) arrive_there(address_in(shared_address(&empty[s]), int(blockIdx.x) % kCluster ^ 1));
  };

  if (group == kConsumers) {
    shrink_registers<blocks_of_sm<Unit>(kEnd, kTokens) == 2 ? 32 : kScaled ? 24 : 40>();
    // The first warp has the tokens, the others the weights, which wait for nobody.
    if (lane == 0) {
      const int worker = warp % 4;
      constexpr int kWorkers = 3, kMost = (kTilesOfBlock + kWorkers - 1) / kWorkers;      // that copy weights; row tiles of one
      if (worker == 0) await_predecessors();
      for (int i = blockIdx.x / kCluster; i < n_items; i += gridDim.x / kCluster) {
        const Item<kByChain> item(i);
        const Place at = place<kCluster>(item.place, grid);
        if (worker == 0) {
          const int first_token = at.token_block * kTokens, in_tile = kTokens == kTileTokens ? 0 : first_token % kTileTokens;
          const std::byte* tokens = x + int64_t{first_token / kTileTokens} * grid.n_units * kTileBytes + in_tile * 128;
          // What lies in the next tile, if there is one: tokens beyond the last may hold anything.
          const int n_here = min(kTokens, kTileTokens - in_tile) * 128, n_next = first_token + n_here / 128 < grid.n_tokens ? kInputBytes - n_here : 0;
          const std::byte* next_tokens = tokens - in_tile * 128 + int64_t{grid.n_units} * kTileBytes;
#pragma unroll 1
          for (int chain = item.first_chain; chain < item.end_chain; ++chain)
#pragma unroll 1
            for (int u = chain; u < grid.n_units; u += kChains) {
              await(&empty[stage], phase ^ 1);
              arrive_expecting(&full[stage], kWeightBytes<Unit> + n_here + n_next);
              const auto copy_tokens = [&](std::byte* to, const std::byte* from, int n_bytes) {
                if (kCluster == 1) return copy_bulk(to, from, n_bytes, &full[stage]);
                const int half = n_bytes / 256 * 128;                        // whole tokens
                if (blockIdx.x % kCluster) copy_bulk_to_pair(to + half, from + half, n_bytes - half, &full[stage]);
                else if (half > 0) copy_bulk_to_pair(to, from, half, &full[stage]);
              };
              copy_tokens(inputs + stage * kInputBytes, tokens + int64_t{u} * kTileBytes, n_here);
              if (kTileTokens % kTokens > 0 && n_next > 0) copy_tokens(inputs + stage * kInputBytes + n_here, next_tokens + int64_t{u} * kTileBytes, n_next);
              advance();
            }
        } else {
          const std::byte* units[kMost];
#pragma unroll
          for (int r = 0; r < kMost; ++r) {
            const int nth = min(worker - 1 + r * kWorkers, kTilesOfBlock - 1);   // of the block's row tiles
            const GemmPart& part = kJoined ? parts.part[nth % 2] : kGated ? parts.part[nth / 4] : part_of(parts, at.row_block);
            const int tile = kJoined ? at.row_block * 4 + nth / 2 : kGated ? at.row_block * 4 + nth % 4 : (at.row_block - part.first_block) * kTilesOfBlock + nth;
            units[r] = part.units + int64_t{min(tile, (part.rows + kTileRows - 1) / kTileRows - 1)} * grid.n_units * Unit::kBytes;
          }
#pragma unroll 1
          for (int chain = item.first_chain; chain < item.end_chain; ++chain)
#pragma unroll 1
            for (int u = chain; u < grid.n_units; u += kChains) {
              await(&empty[stage], phase ^ 1);
#pragma unroll
              for (int r = 0; r < kMost; ++r)
                if (const int nth = worker - 1 + r * kWorkers; nth < kTilesOfBlock)
                  copy_bulk(weights + stage * kWeightBytes<Unit> + nth * Unit::kBytes, units[r] + int64_t{u} * Unit::kBytes, Unit::kBytes, &full[stage]);
              advance();
            }
        }
      }
    }
  } else {
    grow_registers<blocks_of_sm<Unit>(kEnd, kTokens) == 2 ? 104 : kScaled ? 240 : 232>();
    const int g = lane / 4, q = lane % 4;
    if (parts.factors) await_predecessors();
    std::byte* end = weights + kDepth * kWeightBytes<Unit>;                  // what is swapped, or leaves
    if (kEnd == GemmEnd::rows) end += -shared_address(end) & 1023;
    constexpr int kTurnBarriers = 4;
    [[maybe_unused]] const auto await_turn = [&] { sync_threads_of(kTurnBarriers + group, kConsumers * 128); };
    [[maybe_unused]] const auto give_turn = [&] { arrive_among_threads(kTurnBarriers + 1 - group, kConsumers * 128); };
    if (kScaled && group == 1) give_turn();
    const auto meet_all = [] { sync_threads_of(1, kConsumers * 128); };
    [[maybe_unused]] const auto send_tile = [&](const Place& at, const std::byte* tile) {
      fence_for_wgmma();
      meet_all();
      if (threadIdx.x > 0 || at.row_block >= grid.n_row_blocks) return;
      const int first_token = at.token_block * kTokens, in_tile = first_token % kTileTokens, n_here = min(kTokens, kTileTokens - in_tile);
      std::byte* const to = out_tiles + (int64_t{first_token / kTileTokens} * grid.n_row_blocks + at.row_block) * kTileBytes;
      store_bulk(to + in_tile * 128, tile, n_here * 128);
      if (n_here < kTokens && first_token + n_here < grid.n_tokens) store_bulk(to + int64_t{grid.n_row_blocks} * kTileBytes, tile + n_here * 128, (kTokens - n_here) * 128);
      commit_stores();
    };
#pragma unroll 1
    for (int i = blockIdx.x / kCluster; i < n_items; i += gridDim.x / kCluster) {
      const Item<kByChain> item(i);
      float acc[kTokens / 2];
      [[maybe_unused]] float total[kTokens / 2];
      [[maybe_unused]] uint32_t a[4][4];
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) acc[j] = 0, total[j] = 0;
      [[maybe_unused]] ScaledSums<Unit, kTokens> sums;
      const Place at = place<kCluster>(item.place, grid);
      // Asked for here, and left in shared memory when the tile before has read its own.
      [[maybe_unused]] const float own_factor = !kByChain && threadIdx.x < kTokens ? factor_of(parts, at.token_block * kTokens + int(threadIdx.x)) : 1.0f;
      for (int chain = item.first_chain; chain < item.end_chain; ++chain) {
        for (int u = chain; u < grid.n_units; u += kChains) {
          await(&full[stage], phase);
          [[maybe_unused]] const std::byte* unit = weights + stage * kWeightBytes<Unit> + warp * Unit::kBytes;
          const uint64_t b = wgmma_tile(inputs + stage * kInputBytes);
          if constexpr (kScaled) {
            sums.multiply(acc, unit, b, lane, await_turn, give_turn, [&] { leave(stage); });
          } else if constexpr (kAsItLies<Unit>) {
            // Joined: eight rows of the gate, the same of the up projection, and so on, every other eight for each warpgroup.
            const std::byte* const rows_here = weights + stage * kWeightBytes<Unit>;
            const uint64_t rows = kJoined ? wgmma_units(rows_here + group * 1024, 2048) : wgmma_units(rows_here + group * 4 * Unit::kBytes);
            wgmma_fence();
#pragma unroll
            for (int t = 0; t < 4; ++t) wgmma(acc, rows + 16 * t, b + 2 * t, u == chain && t == 0);
            wgmma_commit();
            wgmma_await<1>();                                                // the unit before has been multiplied
            if (u > chain) leave(stage == 0 ? kDepth - 1 : stage - 1);
          } else {
            auto held = Operands<Unit>::open(unit, lane);
            wgmma_await<0>();                                                // the unit before has been multiplied
            if (u > chain) leave(stage == 0 ? kDepth - 1 : stage - 1);
#pragma unroll
            for (int t = 0; t < 4; ++t) Operands<Unit>::take(a[t], held, t);
            wgmma_fence();
#pragma unroll
            for (int t = 0; t < 4; ++t) wgmma(acc, a[t], b + 2 * t, u == chain && t == 0);
            wgmma_commit();
          }
          advance();
        }
        if constexpr (kScaled) {
          if constexpr (!kByChain)
#pragma unroll
            for (int j = 0; j < kTokens / 2; ++j) total[j] += acc[j], acc[j] = 0;
        } else {
          wgmma_await<0>();
          hold(acc);
          if (chain < grid.n_units) {                                        // otherwise `acc` is still the chain's before
            leave(stage == 0 ? kDepth - 1 : stage - 1);
            if constexpr (!kByChain)
#pragma unroll
              for (int j = 0; j < kTokens / 2; ++j) total[j] += acc[j];
          }
        }
      }
      [[maybe_unused]] const auto leave_factor = [&] {
        if (threadIdx.x < kTokens) reinterpret_cast<float*>(factors)[threadIdx.x] = own_factor;
      };
      [[maybe_unused]] const bool there = at.row_block < grid.n_row_blocks;  // or a cluster's last block has no rows
      if constexpr (kByChain) {
        if (!there) continue;
        float4* const to = chain_sums + chain_sums_at(at.row_block, at.token_block, item.first_chain, kTokens, grid) + threadIdx.x;
#pragma unroll
        for (int n = 0; n < kTokens / 8; ++n) to[n * (kConsumers * 128)] = {acc[4 * n], acc[4 * n + 1], acc[4 * n + 2], acc[4 * n + 3]};
      } else if constexpr (kJoined) {
        const int row = warp % 4 * kTileRows + group * 8 + g;                // of 64
        const auto of_row = [&](const float* p) { return p && there ? p + at.row_block * 64 + row : nullptr; };
        const float *gate_bias = of_row(parts.part[0].bias), *up_bias = of_row(parts.part[1].bias);
        const auto scale = [&](const GemmPart& part) { return there ? scale_of(part, at.row_block * 64 + row) : 0.0f; };
        const float by_gate = scale(parts.part[0]), by_up = scale(parts.part[1]);
        if (threadIdx.x == 0) await_stores_read();                           // the tile before has left
        leave_factor();
        meet_all();
#pragma unroll
        for (int first = 0; first < kTokens / 2; first += 16) {
          float gate[8], factor[8];
#pragma unroll
          for (int i = 0; i < 8; i += 2) factor[i] = factors[(first / 4 + i / 2) * 4 + q].x, factor[i + 1] = factors[(first / 4 + i / 2) * 4 + q].y;
#pragma unroll
          for (int i = 0; i < 8; ++i) gate[i] = finished(total[first + i / 2 * 4 + i % 2], by_gate, factor[i], gate_bias);
          act_all<act_of(kEnd)>(gate);
#pragma unroll
          for (int i = 0; i < 8; ++i) gate[i] *= finished(total[first + i / 2 * 4 + 2 + i % 2], by_up, factor[i], up_bias);
#pragma unroll
          for (int i = 0; i < 8; i += 2) {
            // Rows 2i and 2i + 1 lie in neighbouring lanes and share a word: one lane writes it for the first of two tokens, the other for the second.
            const float received = __shfl_xor_sync(0xffffffffu, g % 2 ? gate[i] : gate[i + 1], 4);
            const uint32_t word = g % 2 ? pack_bf16(received, gate[i + 1]) : pack_bf16(gate[i], received);
            *reinterpret_cast<uint32_t*>(end + tile_place((first / 4 + i / 2) * 8 + 2 * q + g % 2, row & ~1, 1, Unit::kHalves)) = word;
          }
        }
        send_tile(at, end);
      } else if constexpr (kGated) {
        float* swap = reinterpret_cast<float*>(end);                         // [of which warpgroup][token of half of them][row]
        const GemmPart& part = parts.part[group];
        const int row = warp % 4 * kTileRows + g;                            // of 64
        const float* bias = part.bias && there ? part.bias + at.row_block * 64 + row : nullptr;
        float scale[2] = {};
        if (there) scale[0] = scale_of(part, at.row_block * 64 + row), scale[1] = scale_of(part, at.row_block * 64 + row + 8);
        if (threadIdx.x == 0) await_stores_read();                           // the tile before has left
        leave_factor();
        meet_all();
        float mine[kTokens / 4];                                             // of the warpgroup's own half of the tokens, as `total` has them
#pragma unroll
        for (int first = 0; first < kTokens / 4; first += 4) {
          const float2 of_low = factors[first + q], of_high = factors[kTokens / 4 + first + q];
#pragma unroll
          for (int j = first; j < first + 4; ++j) {
            const int r = j / 2 % 2, token = j / 4 * 8 + 2 * q + j % 2;
            const float low = finished(total[j], scale[r], j % 2 ? of_low.y : of_low.x, bias ? bias + 8 * r : nullptr);
            const float high = finished(total[kTokens / 4 + j], scale[r], j % 2 ? of_high.y : of_high.x, bias ? bias + 8 * r : nullptr);
            mine[j] = group ? high : low;
            swap[(group * (kTokens / 2) + token) * kSwapStride + row + 8 * r] = group ? low : high;
          }
        }
        meet_all();
#pragma unroll
        for (int first = 0; first < kTokens / 4; first += 8) {
          float gate[8], up[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const int j = first + i;
            const float other = swap[((1 - group) * (kTokens / 2) + j / 4 * 8 + 2 * q + j % 2) * kSwapStride + row + 8 * (j / 2 % 2)];
            gate[i] = group ? other : mine[j], up[i] = group ? mine[j] : other;
          }
          act_all<act_of(kEnd)>(gate);
#pragma unroll
          for (int i = 0; i < 8; ++i) mine[first + i] = gate[i] * up[i];
        }
        meet_all();                                                          // from here on the memory is the tile that leaves
        std::byte* tile = reinterpret_cast<std::byte*>(swap);
#pragma unroll
        for (int j = 0; j < kTokens / 4; j += 2) {
          // Rows 2i and 2i + 1 lie in neighbouring lanes and share a word: one lane writes it for the first of two tokens, the other for the second.
          const float received = __shfl_xor_sync(0xffffffffu, g % 2 ? mine[j] : mine[j + 1], 4);
          const uint32_t word = g % 2 ? pack_bf16(received, mine[j + 1]) : pack_bf16(mine[j], received);
          const int token = group * (kTokens / 2) + j / 4 * 8 + 2 * q + g % 2, in_unit = row + 8 * (j / 2 % 2);
          *reinterpret_cast<uint32_t*>(tile + tile_place(token, in_unit & ~1, 1, Unit::kHalves)) = word;
        }
        send_tile(at, tile);
      } else {
        const GemmPart& part = part_of(parts, at.row_block);
        const int which = int(&part - parts.part), first_row = (at.row_block - part.first_block) * kRows + group * 64, in_group = warp % 4 * kTileRows + g;
        float scale[2] = {};
        const float* bias[2] = {nullptr, nullptr};
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = first_row + in_group + 8 * r;
          if (row >= part.rows) break;
          scale[r] = scale_of(part, row);
          if (part.bias) bias[r] = part.bias + row;
        }
        if (parts.factors) {
          meet_all();
          leave_factor();
          meet_all();
        }
        // A few tokens at a time, by turns: while the copy engine reads one box the next is written. 32 rows of a token are 128 bytes, chunks swizzled: no two lanes meet in a bank.
        std::byte* const boxes = end + group * 2 * 2 * kBoxBytes;
#pragma unroll
        for (int first = 0, turn = 0; first < kTokens; first += kBoxTokens, turn ^= 1) {
          std::byte* const box = boxes + turn * 2 * kBoxBytes;
          if (threadIdx.x % 128 == 0) await_stores_read<1>();
          sync_threads_of(2 + group, 128);
#pragma unroll
          for (int t = first; t < first + kBoxTokens && t < kTokens; t += 8) {
            const float2 factor = parts.factors ? factors[t / 2 + q] : float2{1, 1};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int row = in_group + i / 2 * 8, token = t - first + 2 * q + i % 2;
              *reinterpret_cast<float*>(box + row / 32 * kBoxBytes + swizzled(token, row % 32 / 4) + row % 4 * 4) = finished(total[t / 2 + i], scale[i / 2], i % 2 ? factor.y : factor.x, bias[i / 2]);
            }
          }
          fence_for_wgmma();
          sync_threads_of(2 + group, 128);
          if (threadIdx.x % 128 == 0) {
            const CUtensorMap& map = first + kBoxTokens <= kTokens ? outputs.of_part[which] : outputs.last[which];
            const int token = at.token_block * kTokens + first;
#pragma unroll
            for (int h = 0; h < 2; ++h)
              if (parts.residual.x) add_box(map, first_row + 32 * h, token, box + h * kBoxBytes);
              else store_box(map, first_row + 32 * h, token, box + h * kBoxBytes);
            commit_stores();
          }
        }
      }
    }
    if (threadIdx.x % 128 == 0) await_stores();
  }
  if (kCluster > 1) arrive_in_cluster(), await_cluster();                      // the other block's arrivals come here
#endif
}

template <class Unit, GemmEnd kEnd, int kTokens>
void launch(const GemmCall& call, const Launch& l) {
  constexpr int kCluster = kClusterOf<Unit>;
  const GemmParts& parts = call.parts;
  Outputs outputs{};
  for (int i = 0; kEnd == GemmEnd::rows && i < parts.n; ++i) {
    const GemmPart& part = parts.part[i];
    const bool adds = parts.residual.x != nullptr;
    for (const auto& [map, n] : {std::pair{&outputs.of_part[i], kBoxTokens<kTokens>}, {&outputs.last[i], (kTokens - 1) % kBoxTokens<kTokens> + 1}})
      map_outputs(*map, adds ? parts.residual.x : part.out, call.grid.n_tokens, part.rows, adds ? parts.residual.stride : part.out_stride, n);          // as gemm_takes() has tried
  }
  const auto kernel = gemm_kernel<Unit, kEnd, kTokens>;
  const int n_places = (call.grid.n_row_blocks + kCluster - 1) / kCluster * call.grid.n_token_blocks, n_items = kEnd == GemmEnd::chains ? kChains * n_places : n_places;
  constexpr int kBytes = kSharedBytes<Unit, kEnd, kTokens>, kBytesAlone = std::max(kBytes, kRoomForOne);
  const int n_beside = blocks_of_sm<Unit>(kEnd, kTokens, n_items, l.n_sms);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytesAlone);
  launch_kernel_as({.cluster = kCluster}, kernel, std::min(n_items, n_beside * l.n_sms / kCluster) * kCluster, kThreads, n_beside == 1 ? kBytesAlone : kBytes, l.stream, parts, outputs, call.x, call.out_tiles, call.chain_sums, call.grid, n_items);
}

template <class Unit, int kTokens>
void multiply(const GemmCall& call, GemmEnd end, const Launch& l) {
  if (end == GemmEnd::rows) launch<Unit, GemmEnd::rows, kTokens>(call, l);
  if constexpr (kTokens != kFewerTokens) {
    if (end == GemmEnd::chains) launch<Unit, GemmEnd::chains, kTokens>(call, l);
    if (end == GemmEnd::silu) launch<Unit, GemmEnd::silu, kTokens>(call, l);
    if (end == GemmEnd::gelu_tanh) launch<Unit, GemmEnd::gelu_tanh, kTokens>(call, l);
  }
}

#define RIDGE_FOR_PLAIN_UNITS(kTokens)                                                      \
  template void multiply<Bf16Unit, kTokens>(const GemmCall&, GemmEnd, const Launch&);       \
  template void multiply<Fp8Unit<false>, kTokens>(const GemmCall&, GemmEnd, const Launch&); \
  template void multiply<Nvfp4Unit, kTokens>(const GemmCall&, GemmEnd, const Launch&);      \
  template void multiply<Mxfp4Unit, kTokens>(const GemmCall&, GemmEnd, const Launch&);
#define RIDGE_FOR_SCALED_UNITS(kTokens)                                                     \
  template void multiply<Fp8Unit<true>, kTokens>(const GemmCall&, GemmEnd, const Launch&);  \
  template void multiply<Q8Unit, kTokens>(const GemmCall&, GemmEnd, const Launch&);         \
  template void multiply<Q4Unit, kTokens>(const GemmCall&, GemmEnd, const Launch&);         \
  template void multiply<Q41Unit, kTokens>(const GemmCall&, GemmEnd, const Launch&);

}  // namespace ridge::cuda::blocks
