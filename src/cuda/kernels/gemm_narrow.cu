// Matmul for several tokens (9 to 32) on sm_90, where the weights' bytes still are the cost: a cluster of two blocks takes 128 rows of a weight (or 64, where there would be few
// blocks), and each block half of the inputs. What a block reads of the tokens serves all of its rows.
//
// The arithmetic is that of all kernels: unit u belongs to chain u mod 8, a chain adds up in order from zero, and the chains are added in order. Block r of a cluster
// has chains 4 r to 4 r + 3; each of its chains has a warp for every 32 rows. In the end member m of the eight (4 r + chain) finishes share m of every thread's sums, those
// of row tile m / 4 and token group m % 4: the same thread of the others writes its chain's sums into m's shared memory, and they are added in the order of the chains.
//
// Tokens come as tiles of the matmul for many (lib/tiles.h), of which the first 32 are copied. Weights are asked for before the kernel waits for its predecessors.
// On the tensor cores' wider instruction (wgmma with 32 tokens, weights decoded in registers) a unit of 128 rows took 420 cycles with eight warps and with sixteen, some 52 for
// each instruction, where its bytes take 224 in nvfp4; copying no tokens at all changed nothing.
#include <algorithm>

#include "cuda/kernels/gemm_tile.h"
#include "cuda/lib/activation.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/units.h"

namespace ridge::cuda {
namespace {

constexpr int kTokens = 32, kGroups = kTokens / 8, kChains = 8, kBlockChains = 4, kCluster = 2;

template <class Unit, int kRows>
struct Shape {
  static constexpr int kRowGroups = kRows / 32, kRowTiles = kRows / kTileRows, kWarps = kBlockChains * kRowGroups, kThreads = (kWarps + 4) * 32;
  static constexpr int kWeightBytes = kRowTiles * Unit::kBytes, kInputBytes = kTokens * 128;     // of a unit
  static constexpr int kUnits = 4 * (kWeightBytes + kInputBytes) <= 36000 ? 4 : 2 * (kWeightBytes + kInputBytes) <= 36000 ? 2 : 1;      // of a slot
  static constexpr int kSlotBytes = kUnits * (kWeightBytes + kInputBytes);
  static constexpr int kReceivedBytes = kChains * kWarps * 32 * 16, kSwapBytes = kWarps * 32 * 8;
  static constexpr int kSlots = (224 * 1024 - kReceivedBytes - kSwapBytes) / kSlotBytes;
  static constexpr int kBytes = 1024 + kSlots * kSlotBytes + kReceivedBytes + kSwapBytes;
  static constexpr int kStep = kBlockChains / kUnits;                       // slots of a group of units, one of each chain
  static_assert(kSlots >= kStep && kSlots >= 2);
};

struct Narrow {
  const std::byte* x;
  std::byte* out_tiles;                                                     // null: plain outputs; else half the rows of a cluster are the gate's and half the up projection's
  bool silu;                                                                // the activation, else gelu_tanh
  int n_groups, n_units, n_row_blocks, n_tokens;                            // groups: of one unit of each chain
};

#if __CUDA_ARCH__ >= 900
__device__ inline int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}
__device__ inline void sync_cluster() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
__device__ inline uint32_t address_in(int block, const void* shared) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(shared)), "r"(block));
  return address;
}
__device__ inline void store_there(uint32_t address, const float (&v)[4]) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
__device__ inline void arrive_there(uint32_t barrier) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory"); }
__device__ inline void await_cluster(Barrier* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(shared_address(b)), "r"(parity)
      : "memory");
}
// Four 8 x 8 matrices of 16 bits, one row of 16 bytes from each lane's address: lane 4 i + j receives word j of row i of each.
__device__ inline void load_matrices(uint32_t* r, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
#endif

template <class Unit, int kRows>
__global__ void __launch_bounds__(Shape<Unit, kRows>::kThreads, 1) narrow_kernel(const __grid_constant__ GemmParts parts, const __grid_constant__ Narrow in) {
#if __CUDA_ARCH__ >= 900
  using P = Shape<Unit, kRows>;
  constexpr int kUnits = P::kUnits, kWarps = P::kWarps;
  extern __shared__ std::byte raw_shared[];
  __shared__ Barrier full[P::kSlots], empty[P::kSlots], arrived[kWarps], may_send[kWarps];       // the last two: for each multiplying warp
  std::byte* const inputs = raw_shared + (-shared_address(raw_shared) & 1023);                  // [slot][unit][token][128 bytes]
  std::byte* const weights = inputs + P::kSlots * kUnits * P::kInputBytes;                      // [slot][row tile][unit]
  float4* const received = reinterpret_cast<float4*>(weights + P::kSlots * kUnits * P::kWeightBytes);        // [chain][warp][lane]
  float4* const swap = received + kChains * kWarps * 32;                                        // [chain of the block][32 rows of the up projection][lane]
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0), lane = threadIdx.x % 32; // the compiler sees that a warp agrees on it
  const int rank = cluster_rank(), first_block = blockIdx.x / kCluster, n_clusters = gridDim.x / kCluster;
  start_dependents();
  if (threadIdx.x == 0) {
    for (int s = 0; s < P::kSlots; ++s) init_barrier(&full[s], 1), init_barrier(&empty[s], kUnits * P::kRowGroups);
    for (int w = 0; w < kWarps; ++w) init_barrier(&arrived[w], kChains - 1), init_barrier(&may_send[w], kChains - 1);
    publish_barriers();
  }
  __syncthreads();
  sync_cluster();

  if (warp >= kWarps) {
    if (lane == 0) {
      // Of four workers each has a quarter of the row tiles, and in turn the tokens of a unit.
      const int worker = warp - kWarps;
      constexpr int kOwn = P::kRowTiles / 4;
      struct Walk {
        int row_block, unit;
        __device__ void advance(const Narrow& in, int n_clusters) {
          unit += kUnits;
          if (unit % kBlockChains == 0) unit += kChains - kBlockChains;
          if (unit >= in.n_units) unit %= kChains, row_block += n_clusters;   // it ends where it began
        }
      };
      const auto ask_weights = [&](const Walk& at, int slot) {
        const GemmPart& part = in.out_tiles ? parts.part[worker / 2] : part_of(parts, at.row_block);
        const int first_tile = in.out_tiles ? at.row_block * (P::kRowTiles / 2) + worker % 2 * kOwn : (at.row_block - part.first_block) * P::kRowTiles + worker * kOwn;
        const int last_tile = (part.rows + kTileRows - 1) / kTileRows - 1;
        if (worker == 0) arrive_expecting(&full[slot], P::kSlotBytes);
#pragma unroll
        for (int t = 0; t < kOwn; ++t)
          copy_bulk(weights + (slot * P::kRowTiles + worker * kOwn + t) * kUnits * Unit::kBytes, part.units + (int64_t{min(first_tile + t, last_tile)} * in.n_units + at.unit) * Unit::kBytes,
                    kUnits * Unit::kBytes, &full[slot]);
      };
      const auto ask_tokens = [&](const Walk& at, int slot) {
#pragma unroll
        for (int u = 0; u < kUnits; ++u)
          if (worker == (slot + u) % 4) copy_bulk(inputs + (slot * kUnits + u) * P::kInputBytes, in.x + int64_t{at.unit + u} * kTileBytes, P::kInputBytes, &full[slot]);
      };
      const Walk start{first_block, rank * kBlockChains};
      Walk at = start, tokens_at = start;
      int n_ahead = 0;
      for (; n_ahead < P::kSlots && at.row_block < in.n_row_blocks; ++n_ahead, at.advance(in, n_clusters)) ask_weights(at, n_ahead);
      await_predecessors();
      for (int slot = 0; slot < n_ahead; ++slot, tokens_at.advance(in, n_clusters)) ask_tokens(tokens_at, slot);
      int slot = 0;
      uint32_t phase = 0;
      for (; at.row_block < in.n_row_blocks; at.advance(in, n_clusters)) {
        await(&empty[slot], phase);
        ask_weights(at, slot);
        ask_tokens(at, slot);
        if (++slot == P::kSlots) slot = 0, phase ^= 1;
      }
    }
    __syncwarp();
  } else {
    const int g = lane / 4, q = lane % 4, chain = warp / P::kRowGroups, rows = warp % P::kRowGroups, me = rank * kBlockChains + chain;
    const uint32_t my_row = lane % 8 * 128, low = my_row + ((lane / 8 ^ lane % 8) << 4), high = my_row + (((lane / 8 + 4) ^ lane % 8) << 4);          // chunks 0 to 3 and 4 to 7 of eight tokens
    int slot = chain / kUnits;
    uint32_t phase = 0, tile_phase = 0;
    await_predecessors();                                                    // outputs may still be read
    for (int row_block = first_block; row_block < in.n_row_blocks; row_block += n_clusters, tile_phase ^= 1) {
      float acc[2][kGroups][4];
#pragma unroll
      for (int i = 0; i < 2 * kGroups * 4; ++i) acc[i / (kGroups * 4)][i / 4 % kGroups][i % 4] = 0;
#pragma unroll 1
      for (int i = 0; i < in.n_groups; ++i) {
        const std::byte* unit = weights + ((slot * P::kRowTiles + 2 * rows) * kUnits + chain % kUnits) * Unit::kBytes;
        const uint32_t tokens = shared_address(inputs + (slot * kUnits + chain % kUnits) * P::kInputBytes);
        await(&full[slot], phase);
        uint32_t b[kGroups][8];
#pragma unroll
        for (int n = 0; n < kGroups; ++n) load_matrices(b[n], tokens + n * 1024 + low), load_matrices(b[n] + 4, tokens + n * 1024 + high);
        const auto first = Unit::template load<Staged>(unit, lane), second = Unit::template load<Staged>(unit + kUnits * Unit::kBytes, lane);
        Unit::multiply(acc[0], first, b);
        Unit::multiply(acc[1], second, b);
        __syncwarp();
        if (lane == 0) arrive(&empty[slot]);
        slot += P::kStep;
        if (slot >= P::kSlots) slot -= P::kSlots, phase ^= 1;
      }

      // Sums go to the members that finish them.
      await_cluster(&may_send[warp], tile_phase ^ 1);                        // they have read those of the tile before
      float own[4];
#pragma unroll
      for (int to = 0; to < kChains; ++to) {
        const float(&share)[4] = acc[to / kBlockChains][to % kBlockChains];
        if (to == me) own[0] = share[0], own[1] = share[1], own[2] = share[2], own[3] = share[3];
        else store_there(address_in(to / kBlockChains, received + (me * kWarps + to % kBlockChains * P::kRowGroups + rows) * 32 + lane), share);
      }
      __syncwarp();
      const int other = lane % kBlockChains * P::kRowGroups + rows;          // the same rows' warp of member `lane`
      if (lane < kChains && lane != me) arrive_there(address_in(lane / kBlockChains, &arrived[other]));
      await_cluster(&arrived[warp], tile_phase);
      float sum[4] = {0, 0, 0, 0};
#pragma unroll
      for (int c = 0; c < kChains; ++c) {
        const float4 v = c == me ? float4{own[0], own[1], own[2], own[3]} : received[(c * kWarps + warp) * 32 + lane];
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
      __syncwarp();
      if (lane < kChains && lane != me) arrive_there(address_in(lane / kBlockChains, &may_send[other]));

      const bool pairs = in.out_tiles != nullptr;
      const int up = pairs && rows >= P::kRowGroups / 2;
      const GemmPart& part = pairs ? parts.part[up] : part_of(parts, row_block);
      const int in_block = rank * kTileRows + g + rows % (pairs ? P::kRowGroups / 2 : P::kRowGroups) * 32;
      const int row = pairs ? row_block * (kRows / 2) + in_block : (row_block - part.first_block) * kRows + in_block, token = chain * 8 + 2 * q;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int at = row + 8 * r;
        if (at >= part.rows) continue;
        const float row_scale = part.row_scales ? part.row_scales[at] : 1.0f;
        const float* bias = part.bias ? part.bias + at : nullptr;
        sum[2 * r] = finished(sum[2 * r], part.scale, row_scale, bias), sum[2 * r + 1] = finished(sum[2 * r + 1], part.scale, row_scale, bias);
        if (pairs) continue;
        float* out = part.out + int64_t{token} * part.out_stride + at;
        if (token < in.n_tokens) out[0] = sum[2 * r];
        if (token + 1 < in.n_tokens) out[part.out_stride] = sum[2 * r + 1];
      }
      if (pairs) {
        float4* const there = swap + (chain * (P::kRowGroups / 2) + rows % (P::kRowGroups / 2)) * 32 + lane;
        if (up) *there = {sum[0], sum[1], sum[2], sum[3]};
        sync_threads_of(1 + chain, P::kRowGroups * 32);
        if (!up) {
          const float factor[4] = {there->x, there->y, there->z, there->w};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int k = row + i / 2 * 8;
            const float gate = in.silu ? act<ActKind::silu>(sum[i]) : act<ActKind::gelu_tanh>(sum[i]);
            *reinterpret_cast<__nv_bfloat16*>(in.out_tiles + tile_place(token + i % 2, k & ~1, 0) + k % 2 * 2) = __float2bfloat16_rn(__fmul_rn(gate, factor[i]));
          }
        }
        sync_threads_of(1 + chain, P::kRowGroups * 32);
      }
    }
  }
  sync_cluster();                                                            // nobody's memory goes while others write there
#endif
}

template <class Unit, int kRows>
void launch(GemmParts parts, Narrow in, const Launch& l) {
  using P = Shape<Unit, kRows>;
  for (int i = 0; i < parts.n; ++i) {
    parts.part[i].first_block = in.n_row_blocks;
    parts.part[i].scale *= Unit::kFactor;
    in.n_row_blocks += (parts.part[i].rows + kRows - 1) / kRows;
  }
  if (in.out_tiles) in.n_row_blocks = parts.part[0].rows / (kRows / 2);
  const auto kernel = narrow_kernel<Unit, kRows>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::kBytes);
  launch_kernel_as({.cluster = kCluster}, kernel, std::min(in.n_row_blocks, l.n_sms / kCluster) * kCluster, P::kThreads, P::kBytes, l.stream, parts, in);
}

}  // namespace

bool narrow_gemm_takes(const Tensor& x) { return x.rows > 8 && x.rows <= kTokens && x.cols % (kChains * kUnit) == 0; }

void narrow_gemm(const Weight& first, const GemmParts& parts, const Tensor& x, const std::byte* tiles, std::byte* out_tiles, ActKind kind, const Launch& l) {
  const Narrow in{tiles, out_tiles, kind == ActKind::silu, int(x.cols) / (kChains * kUnit), int(x.cols) / kUnit, 0, int(x.rows)};
  int n_rows = 0;
  for (int i = 0; i < parts.n; ++i) n_rows += parts.part[i].rows;
  const bool few_rows = !out_tiles && n_rows <= l.n_sms / kCluster * 64;
  with_unit(first, [&](auto unit) {
    using Unit = decltype(unit);
    few_rows ? launch<Unit, 64>(parts, in, l) : launch<Unit, 128>(parts, in, l);
  });
}

}  // namespace ridge::cuda
