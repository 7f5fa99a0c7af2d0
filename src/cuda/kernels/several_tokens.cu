// Matmul for several tokens (up to 32), too many for few_tokens.cu to keep their rows in shared memory, too few for gemm_wgmma.cu's tiles. What binds here is not the weights alone but the
// input that every multiprocessor has to fetch for the rows it multiplies: the second-level cache gives 6.5 TB/s to all of them together, and 32 rows a block (matmul.cu) mean
// 200 MB of input for gate and up of an 8B model beside 57 MB of nvfp4. Here two blocks are a cluster that multiplies 4 x RT row tiles; each has four of the eight chains of
// inputs (unit u belongs to chain u mod 8), half of the input.
//
// Of a block's 16 warps that multiply four (one a chain) take each group of RT row tiles, with RT x NT products of 16 rows x 8 tokens in registers: decoding a unit is a long
// way for a warp, so it takes four of them on each scheduler (eight warps a block, in clusters of four, took 750 cycles for 128 rows of a unit of nvfp4). Weights come through
// a ring for each group, filled by one warp each (asking for a bulk copy takes it some 60 cycles), the input through one for all.
//
// nvfp4 and mxfp4 are multiplied by wgmma, weights decoded in registers, the input as it lies in shared memory (Lanes::rows): there a warp has one row tile of its warpgroup's four
// and RT chains. It needs no registers for the input and leaves the tensor cores to themselves: 4.8 % more tokens at batch 32 than by mma.sync.
//
// When a tile is done, the block with the first chains adds them up in order and sends the sum to the other, which adds its own, chain after chain: the same arithmetic as for
// few and for many tokens. With the next tile they change roles. (When both read each other's chains, half of the rows each, the end of a tile took 10,000 cycles of 26,000:
// loads from the other's memory, and the barrier behind the results' stores.)
#include <algorithm>

#include "cuda/kernels/gemm.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/activation.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/cluster.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/operand.h"
#include "cuda/lib/units.h"
#include "cuda/lib/wgmma.h"

namespace ridge::cuda {
namespace {

constexpr int kCluster = 2, kChains = 8, kOwnChains = kChains / kCluster, kGroups = 4;       // kGroups: of row tiles in a block
constexpr int kConsumers = kGroups * kOwnChains, kThreads = (kConsumers + 4) * 32;           // warps that multiply, and four that copy
constexpr int kMostTokens = 32;
constexpr int kShared = 227 * 1024;

struct Several {
  GemmPart part[3];                          // first_block: its first row tile
  int n_parts, n_tiles, n_units, n_tokens, n_places;      // n_places: tiles of a cluster
  const std::byte* x;                        // lib/lanes.h: NT groups
  Lanes out_lanes;                           // of what is activated; null: as rows
  bool activate;                             // part 0 is the gate, part 1 what it gates
  ActKind act;
  float* residual;                           // += residual_scale * out of part 0; null: none
  int64_t residual_stride;
  float residual_scale;
};

// Shared memory: gates | ring of inputs [slot][own chain][NT] KB | rings of weights [group][slot][row tile][own chain] units | sums [own chain][token][kSumStride], then those of the other block's chains.
template <class Unit, int RT, int NT>
struct Layout {
  static constexpr int kSlotTiles = Unit::kBytes >= 1024 ? 1 : RT, kParts = RT / kSlotTiles;
  static constexpr int kSlotBytes = kSlotTiles * kOwnChains * Unit::kBytes, kInputBytes = kOwnChains * NT * 1024, kInputs = Unit::kBytes >= 2048 ? 2 : 3;
  static constexpr int kRows = kGroups * RT * kTileRows, kSumStride = kRows + 4, kSumBytes = NT * 8 * kSumStride * 4;
  static constexpr int kGates = 1024;
  static constexpr int kFit = (kShared - kGates - kInputs * kInputBytes - (kOwnChains + 1) * kSumBytes) / (kGroups * kSlotBytes), kSlots = kFit < 12 ? kFit : 12;
  static constexpr int kInputsAt = kGates, kRingsAt = kInputsAt + kInputs * kInputBytes, kSumsAt = kRingsAt + kGroups * kSlots * kSlotBytes, kBytes = kSumsAt + (kOwnChains + 1) * kSumBytes;
  static_assert(64 % (kRows / 2) == 0, "a unit of activated rows is whole places");
  static_assert(kSlots >= 3 && RT % kSlotTiles == 0 && (2 * kGroups * kSlots + 2 * kInputs + 2) * 8 <= kGates);
};

// Row tile `tile` of all: of the parts in a row, or with an activation of the gate's rows in the first half of a cluster's tile and what they gate in the second.
template <int RT>
struct Place {
  int which, tile;                           // within its part
  __device__ Place(const Several& f, int place, int of_cluster) {
    constexpr int kHalf = kGroups * RT / 2;
    which = 0;
    if (f.activate) {
      which = of_cluster >= kHalf;
      tile = place * kHalf + of_cluster % kHalf;
    } else {
      tile = place * kGroups * RT + of_cluster;
      while (which + 1 < f.n_parts && tile >= f.part[which + 1].first_block) ++which;
      tile -= f.part[which].first_block;
    }
  }
};

// Formats that need many instructions a byte, and few registers a unit: of the smallest units, two row tiles a slot fit, and a warpgroup multiplies them by wgmma;
// of the others a warp multiplies the halves of a unit in turn.
template <class Unit> constexpr bool kByWgmma = false;
template <class Scales> constexpr bool kByWgmma<E2m1Unit<Scales>> = true;
template <class Unit> constexpr bool kPipelined = std::is_same_v<Unit, Fp8Unit<false>>;

template <class Unit, int RT, int NT>
__global__ void __launch_bounds__(kThreads, 1) several_tokens_kernel(const __grid_constant__ Several f) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<Unit, RT, NT>;
  extern __shared__ __align__(1024) std::byte memory[];
  Barrier* const gates = reinterpret_cast<uint64_t*>(memory);
  constexpr int kSlots = L::kSlots, kLeft = kGroups * kSlots;                 // [group][slot] arrived, then left
  Barrier* const input_arrived = gates + 2 * kLeft;
  Barrier* const input_left = input_arrived + L::kInputs;
  Barrier* const sent = input_left + L::kInputs;                             // the other block's sums to this one
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0), lane = threadIdx.x % 32;     // the compiler sees that a warp agrees on it
  const int rank = blockIdx.x % kCluster, cluster = blockIdx.x / kCluster, n_clusters = gridDim.x / kCluster;
  const int n_steps = (f.n_units + kChains - 1) / kChains;
  start_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kLeft; ++i) init_barrier(gates + i, 1), init_barrier(gates + kLeft + i, kOwnChains);
    for (int i = 0; i < L::kInputs; ++i) init_barrier(input_arrived + i, 1), init_barrier(input_left + i, kConsumers);
    init_barrier(sent, 1);
    publish_barriers();
  }
  __syncthreads();
  arrive_in_cluster();

  if (warp >= kConsumers) {
    shrink_registers<32>();
    if (lane == 0) {
      const int group = warp - kConsumers;
      // Weights: a slot is kSlotTiles row tiles of a step.
      int place = cluster, role = rank, step = 0, part = 0, slot = 0;
      uint32_t phase = 1;                                                     // the first time round a slot is free
      const std::byte* units[RT];
      const uint64_t policy = read_once();
      const auto find_units = [&] {
#pragma unroll
        for (int r = 0; r < RT; ++r) {
          const Place<RT> at(f, place, group * RT + r);
          const GemmPart& p = f.part[at.which];
          units[r] = p.units + (int64_t{min(at.tile, (p.rows - 1) / kTileRows)} * f.n_units + role * kOwnChains) * Unit::kBytes;
        }
      };
      if (place < f.n_places) find_units();
      const auto feed = [&] {                                                 // false: there are no more
        if (place >= f.n_places) return false;
        Barrier* const arrived = gates + group * kSlots + slot;
        await(arrived + kLeft, phase);
        std::byte* const to = memory + L::kRingsAt + (group * kSlots + slot) * L::kSlotBytes;
        const int n = min(max(f.n_units - step * kChains - role * kOwnChains, 0), kOwnChains) * Unit::kBytes;
        arrive_expecting(arrived, n * L::kSlotTiles);
        if (n > 0) {
#pragma unroll
          for (int r = 0; r < RT; ++r)
            if (r / L::kSlotTiles == part) copy_bulk(to + r % L::kSlotTiles * kOwnChains * Unit::kBytes, units[r] + int64_t{step} * kChains * Unit::kBytes, n, arrived, policy);
        }
        if (++slot == kSlots) slot = 0, phase ^= 1;
        if (++part == L::kParts) {
          part = 0;
          if (++step == n_steps) {
            step = 0, place += n_clusters, role ^= 1;
            if (place < f.n_places) find_units();
          }
        }
        return true;
      };
      if (group > 0) {
        while (feed()) {}
      } else {
        // The first also has the input, which is there once the kernel's predecessors are done.
        int x_step = 0, x_slot = 0, x_role = rank, n_left = f.n_places > cluster ? (f.n_places - cluster + n_clusters - 1) / n_clusters * n_steps : 0;
        uint32_t x_phase = 1;
        const auto feed_input = [&] {
          if (n_left-- <= 0) return;
          await(input_left + x_slot, x_phase);
          const int first = x_step * kChains + x_role * kOwnChains, n = min(max(f.n_units - first, 0), kOwnChains) * NT * 1024;
          arrive_expecting(input_arrived + x_slot, n);
          if (n > 0) copy_bulk(memory + L::kInputsAt + x_slot * L::kInputBytes, f.x + int64_t{first} * NT * 1024, n, input_arrived + x_slot);
          if (++x_slot == L::kInputs) x_slot = 0, x_phase ^= 1;
          if (++x_step == n_steps) x_step = 0, x_role ^= 1;
        };
        for (int i = 0; i < kSlots; ++i) feed();
        await_predecessors();
        for (int i = 0; i < L::kInputs; ++i) feed_input();
        for (bool more = true; more;) {
          for (int i = 0; i < L::kParts; ++i) more = feed();
          feed_input();
        }
        while (n_left > 0) feed_input();
      }
    }
    await_cluster();
    return;
  }

  grow_registers<112>();
  await_predecessors();
  // A warp has a chain and the row tiles of a group; or, for wgmma, a row tile of the four that its warpgroup has, and RT chains.
  const int g = lane / 4, q = lane % 4, of_four = warp / 4 % (4 / RT);
  const int chain = kByWgmma<Unit> ? of_four * RT : warp % kOwnChains, tile = kByWgmma<Unit> ? warp / 4 / (4 / RT) * 4 + warp % 4 : warp / kOwnChains * RT, group = tile / RT;
  const std::byte* const ring = memory + L::kRingsAt + group * kSlots * L::kSlotBytes + (tile % RT * kOwnChains + chain) * Unit::kBytes;
  Barrier* const arrived = gates + group * kSlots;
  float* const sums = reinterpret_cast<float*>(memory + L::kSumsAt);
  int slot = 0, x_slot = 0, role = rank;                                       // role: 0 has the first chains and sends, 1 has the others and finishes
  uint32_t phase = 0, x_phase = 0, sent_phase = 0;
  for (int place = cluster; place < f.n_places; place += n_clusters, role ^= 1) {
    float acc[RT][NT][4];
#pragma unroll
    for (int r = 0; r < RT; ++r)
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[r][n][i] = 0;
    const auto input = [&] { return reinterpret_cast<const uint4*>(memory + L::kInputsAt + x_slot * L::kInputBytes + chain * NT * 1024) + lane; };
    const auto leave_slot = [&] {
      __syncwarp();
      if (lane == 0) arrive(arrived + kLeft + slot);
      if (++slot == kSlots) slot = 0, phase ^= 1;
    };
    const auto leave_input = [&] {
      __syncwarp();
      if (lane == 0) arrive(input_left + x_slot);
      if (++x_slot == L::kInputs) x_slot = 0, x_phase ^= 1;
    };
    const int n_own = max(f.n_units - role * kOwnChains - chain + kChains - 1, 0) / kChains;     // steps that the chain has a unit in: all, or all but the last
    if constexpr (kByWgmma<Unit>) {
      static_assert(L::kSlotTiles == RT);
      using Own = Operands<Unit>;
      typename Own::Held next;
      uint32_t a[4][4];
      const auto open = [&](int c) {
        if (c == 0) await(arrived + slot, phase);
        next = Own::open(ring + slot * L::kSlotBytes + c * Unit::kBytes, lane);
        if (c + 1 == RT) leave_slot();
      };
      if (n_own > 0) open(0);
      int x_before = 0;
#pragma unroll 1
      for (int step = 0; step < n_own; ++step) {
        await(input_arrived + x_slot, x_phase);
        const uint64_t b = wgmma_tile(memory + L::kInputsAt + x_slot * L::kInputBytes + chain * NT * 1024);
#pragma unroll
        for (int c = 0; c < RT; ++c) {
          const typename Own::Held held = next;
          if (c + 1 < RT) open(c + 1);
          else if (step + 1 < n_own) open(0);
          if (c > 0 && step * kChains + role * kOwnChains + chain + c >= f.n_units) continue;
#pragma unroll
          for (int t = 0; t < 4; ++t) {
            wgmma_await<3>();                                                    // operand t of the unit before has been multiplied, and with t = 3 all of that unit
            if (c == 0 && t == 3 && step > 0 && lane == 0) arrive(input_left + x_before);
            Own::take(a[t], held, t);
            wgmma_fence();
            wgmma_groups(acc[c], a[t], b + c * (NT * 64) + 2 * t);
            wgmma_commit();
          }
        }
        x_before = x_slot;
        if (++x_slot == L::kInputs) x_slot = 0, x_phase ^= 1;
      }
      wgmma_await<0>();
#pragma unroll
      for (int c = 0; c < RT; ++c)
#pragma unroll
        for (int n = 0; n < NT; ++n) hold(acc[c][n]);
      if (n_own > 0 && lane == 0) arrive(input_left + x_before);
    } else if constexpr (kPipelined<Unit>) {
      // While one half of a unit is multiplied, the input of the other is on its way to registers, and then the next step's units and first half.
      using Units = typename Unit::Held[RT];                                     // of a step
      Units units[2];
      uint4 first[NT], second[NT];
      const auto load = [&](Units& to) {
#pragma unroll
        for (int part = 0; part < L::kParts; ++part) {
          await(arrived + slot, phase);
          const std::byte* const from = ring + slot * L::kSlotBytes;
#pragma unroll
          for (int r = 0; r < L::kSlotTiles; ++r) to[part * L::kSlotTiles + r] = Unit::template load<Staged>(from + r * kOwnChains * Unit::kBytes, lane);
          leave_slot();
        }
        await(input_arrived + x_slot, x_phase);
#pragma unroll
        for (int n = 0; n < NT; ++n) first[n] = input()[n * 64];
      };
      const auto multiply = [&](const Units& now, Units& next, bool more) {
#pragma unroll
        for (int n = 0; n < NT; ++n) second[n] = input()[n * 64 + 32];
        leave_input();
#pragma unroll
        for (int r = 0; r < RT; ++r) Unit::template multiply_half<0>(acc[r], now[r], first);
        if (more) load(next);
#pragma unroll
        for (int r = 0; r < RT; ++r) Unit::template multiply_half<1>(acc[r], now[r], second);
      };
      if (n_own > 0) load(units[0]);
#pragma unroll 1
      for (int step = 0; step < n_own; step += 2) {
        multiply(units[0], units[1], step + 1 < n_own);
        if (step + 1 == n_own) break;
        multiply(units[1], units[0], step + 2 < n_own);
      }
    } else {
#pragma unroll 1
      for (int step = 0; step < n_own; ++step) {
        await(input_arrived + x_slot, x_phase);
        uint32_t b[NT][8];
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          const uint4 u = input()[n * 64], v = input()[n * 64 + 32];
          put_inputs(b[n], u, v);
        }
#pragma unroll
        for (int part = 0; part < L::kParts; ++part) {
          await(arrived + slot, phase);
          const std::byte* const units = ring + slot * L::kSlotBytes;
#pragma unroll
          for (int r = 0; r < L::kSlotTiles; ++r) Unit::multiply(acc[part * L::kSlotTiles + r], Unit::template load<Staged>(units + r * kOwnChains * Unit::kBytes, lane), b);
          leave_slot();
        }
        leave_input();
      }
    }
    if (n_own < n_steps) {                                                       // the others' last step
#pragma unroll
      for (int part = 0; part < L::kParts; ++part) await(arrived + slot, phase), leave_slot();
      await(input_arrived + x_slot, x_phase), leave_input();
    }

    // The tile's sums, chain by chain.
    constexpr int kFours = L::kRows / 4, kItems = kFours * NT * 8;               // of four rows and a token
    if (place > cluster) sync_threads_of(1, kConsumers * 32);                    // the last tile's were read
#pragma unroll
    for (int r = 0; r < RT; ++r)
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[((kByWgmma<Unit> ? chain + r : chain) * NT * 8 + 8 * n + 2 * q + i % 2) * L::kSumStride + (kByWgmma<Unit> ? tile : tile + r) * kTileRows + g + i / 2 * 8] = acc[r][n][i];
    sync_threads_of(1, kConsumers * 32);
    const auto add = [&](float4 sum, int token, int row) {
#pragma unroll
      for (int c = 0; c < kOwnChains; ++c) {
        const float4 v = *reinterpret_cast<const float4*>(sums + (c * NT * 8 + token) * L::kSumStride + row);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
      return sum;
    };
    if (role == 0) {
      // What was sent two places ago has been read: the other block has sent its own since, which this one has read.
      if (place == cluster) await_cluster();
      const uint32_t to = address_in(shared_address(sums + kOwnChains * NT * 8 * L::kSumStride), rank ^ 1), gate = address_in(shared_address(sent), rank ^ 1);
#pragma unroll
      for (int e = threadIdx.x; e < kItems; e += kConsumers * 32) {
        const int token = e / kFours, row = e % kFours * 4;
        send(to + (token * L::kSumStride + row) * 4, add({0, 0, 0, 0}, token, row), gate);
      }
      continue;
    }
    if (threadIdx.x == 0) arrive_expecting(sent, kItems * 16);
    const int n_fours = f.activate ? kFours / 2 : kFours, n_items = n_fours * f.n_tokens;
    constexpr int kMost = (kItems + kConsumers * 32 - 1) / (kConsumers * 32);
    struct Output { int token, in_place, row, which; };
    const auto output = [&](int i) {
      const int e = int(threadIdx.x) + i * kConsumers * 32, in_place = e % n_fours * 4;
      const Place<RT> at(f, place, in_place / kTileRows);
      return Output{e / n_fours, in_place, at.tile * kTileRows + in_place % kTileRows, at.which};
    };
    float4 before[kMost];                                                        // asked for while the sums come
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      before[i] = {0, 0, 0, 0};
      if (f.residual && int(threadIdx.x) + i * kConsumers * 32 < n_items) {
        const Output o = output(i);
        const float* const from = f.residual + o.token * f.residual_stride + o.row;
        const int n = f.part[0].rows - o.row;
        if (n > 0) before[i].x = __ldcg(from);
        if (n > 1) before[i].y = __ldcg(from + 1);
        if (n > 2) before[i].z = __ldcg(from + 2);
        if (n > 3) before[i].w = __ldcg(from + 3);
      }
    }
    if (place == cluster) await_cluster();
    await_in_cluster(sent, sent_phase);
    sent_phase ^= 1;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (int(threadIdx.x) + i * kConsumers * 32 >= n_items) break;
      const Output o = output(i);
      const GemmPart& part = f.part[o.which];
      const auto finished = [&](int in_place, const GemmPart& part) {                          // never fused with the addition: every kernel of this arithmetic rounds here
        const float4 sum = add(*reinterpret_cast<const float4*>(sums + (kOwnChains * NT * 8 + o.token) * L::kSumStride + in_place), o.token, in_place);
        float4 v = {__fmul_rn(sum.x, part.scale), __fmul_rn(sum.y, part.scale), __fmul_rn(sum.z, part.scale), __fmul_rn(sum.w, part.scale)};
        const auto at = [&](const float* p, int j) { return p[min(o.row + j, part.rows - 1)]; };
        if (const float* p = part.row_scales) v = {__fmul_rn(v.x, at(p, 0)), __fmul_rn(v.y, at(p, 1)), __fmul_rn(v.z, at(p, 2)), __fmul_rn(v.w, at(p, 3))};
        if (const float* p = part.bias) v = {__fadd_rn(v.x, at(p, 0)), __fadd_rn(v.y, at(p, 1)), __fadd_rn(v.z, at(p, 2)), __fadd_rn(v.w, at(p, 3))};
        return v;
      };
      float4 v = finished(o.in_place, part);
      if (f.activate) {
        float gate[4] = {v.x, v.y, v.z, v.w};
        if (f.act == ActKind::silu) act_all<ActKind::silu>(gate);
        else
          for (int j = 0; j < 4; ++j) gate[j] = act(f.act, gate[j]);
        const float4 up = finished(o.in_place + L::kRows / 2, f.part[1]);
        v = {__fmul_rn(gate[0], up.x), __fmul_rn(gate[1], up.y), __fmul_rn(gate[2], up.z), __fmul_rn(gate[3], up.w)};
      }
      const auto store = [&](float* to, const float4& v) {
        const int n = part.rows - o.row;
        if (n >= 4 && reinterpret_cast<uintptr_t>(to) % 16 == 0) *reinterpret_cast<float4*>(to) = v;
        else if (n > 0) {
          to[0] = v.x;
          if (n > 1) to[1] = v.y;
          if (n > 2) to[2] = v.z;
          if (n > 3) to[3] = v.w;
        }
      };
      if (f.out_lanes.data) {
        f.out_lanes.put_four(f.out_lanes.at(o.token, o.row), {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)});
        continue;
      }
      store(part.out + o.token * part.out_stride + o.row, v);
      if (const float4& b = before[i]; f.residual)
        store(f.residual + o.token * f.residual_stride + o.row, {fmaf(f.residual_scale, v.x, b.x), fmaf(f.residual_scale, v.y, b.y), fmaf(f.residual_scale, v.z, b.z), fmaf(f.residual_scale, v.w, b.w)});
    }
  }
#endif
}

template <class Unit, int RT, int NT>
void launch(Several f, const Launch& l) {
  using L = Layout<Unit, RT, NT>;
  const auto kernel = several_tokens_kernel<Unit, RT, NT>;
  static const int n_clusters = [&] {                                          // that run at the same time: a property of the device
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);
    cudaLaunchAttribute shape{};
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim = {kCluster, 1, 1};
    cudaLaunchConfig_t config{.gridDim = dim3(kCluster), .blockDim = dim3(kThreads), .dynamicSmemBytes = L::kBytes, .attrs = &shape, .numAttrs = 1};
    int n = 0;
    return cudaOccupancyMaxActiveClusters(&n, kernel, &config) == cudaSuccess && n > 0 ? n : 1;
  }();
  const int per_place = f.activate ? kGroups * RT / 2 : kGroups * RT;
  f.n_places = (f.n_tiles + per_place - 1) / per_place;
  launch_kernel_as({.cluster = kCluster}, kernel, dim3(std::min(f.n_places, n_clusters) * kCluster), kThreads, L::kBytes, l.stream, f);
}

template <class Unit, int NT>
void by_rows(Several f, const Launch& l) {
  f.n_tiles = 0;
  for (int i = 0; i < f.n_parts; ++i) {
    f.part[i].first_block = f.n_tiles;
    f.part[i].scale *= Unit::kFactor;
    const int n = (f.part[i].rows + kTileRows - 1) / kTileRows;
    f.n_tiles = f.activate ? n : f.n_tiles + n;
  }
  // As many row tiles a warp as give the shortest way: the input is fetched, and sums are added up, once for each place.
  const int n_clusters = l.n_sms / kCluster, n = f.activate ? 2 * f.n_tiles : f.n_tiles;
  const auto length = [&](int rt) { return ((n + kGroups * rt - 1) / (kGroups * rt) + n_clusters - 1) / n_clusters * (rt + 1); };
  if (length(1) <= length(2)) launch<Unit, 1, NT>(f, l);
  else launch<Unit, 2, NT>(f, l);
}

}  // namespace

bool takes_several_tokens(const Matmul& op, const Launch& l) {
  if (!kHasSm90a || l.compute_capability != 90 || op.x.rows < 1 || op.x.rows > kMostTokens) return false;
  const Weight* first = nullptr;
  for (const Weight* w : op.w) {
    if (!w) continue;
    if (!first) first = w;
    if (w->arithmetic.x == FormatId::f32 || !same_unit(*w, *first)) return false;
  }
  return first != nullptr;
}

Lanes lanes_for(const Matmul& op, std::byte* data) {
  const auto first = std::find_if(op.w.begin(), op.w.end(), [](const Weight* w) { return w != nullptr; });
  return {data, op.x.rows <= 16 ? 2 : 4, takes_halves(**first), with_unit(**first, [](auto unit) { return kByWgmma<decltype(unit)>; })};
}

void matmul_several_tokens(const Matmul& op, const Around& around, const Launch& l) {
  Several f{};
  const Weight* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    if (!op.w[i]) continue;
    if (!first) first = op.w[i];
    f.part[f.n_parts++] = part_from(op, i);
  }
  f.n_units = (int(op.x.cols) + kUnit - 1) / kUnit;
  f.n_tokens = int(op.x.rows);
  f.x = around.x_lanes ? around.x_lanes : l.matmul_scratch;
  f.out_lanes = around.out_lanes;
  if (around.activate) {
    f.activate = true;
    f.act = around.activate->kind;
    f.part[0].out = around.activate->out.f32();
    f.part[0].out_stride = around.activate->out.stride / 4;
  }
  if (around.residual) {
    f.residual = around.residual->x.f32();
    f.residual_stride = around.residual->x.stride / 4;
    f.residual_scale = around.residual->pending_scale;
  }
  const Lanes lanes = lanes_for(op, l.matmul_scratch);
  if (!around.x_lanes) input_in_lanes(lanes, op.x, l);
  with_unit(*first, [&](auto unit) {
    using Unit = decltype(unit);
    if (lanes.n_groups == 2) by_rows<Unit, 2>(f, l);
    else by_rows<Unit, 4>(f, l);
  });
}

}  // namespace ridge::cuda
