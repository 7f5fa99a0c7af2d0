// Matmul for several tokens (up to 32), too many for few_tokens.cu to keep their rows in shared memory (or to be fast with them: several_tokens_gain), too few for gemm.cu's blocks. What binds here is not the weights alone but the
// input that every multiprocessor has to fetch for the rows it multiplies: the second-level cache gives 6.5 TB/s to all of them together, and 32 rows a block (matmul.cu) mean
// 200 MB of input for gate and up of an 8B model beside 57 MB of nvfp4. Here two blocks are a cluster that multiplies 4 x RT row tiles; each has four of the eight chains of
// inputs (unit u belongs to chain u mod 8), half of the input.
//
// Of a block's 16 warps that multiply four (one a chain) take each group of RT row tiles, with RT x NT products of 16 rows x 8 tokens in registers: decoding a unit is a long
// way for a warp, so it takes four of them on each scheduler (eight warps a block, in clusters of four, took 750 cycles for 128 rows of a unit of nvfp4). Weights come through
// a ring for each group, filled by one warp each (asking for a bulk copy takes it some 60 cycles), the input through one for all.
//
// All but bf16 and q4_1 are decoded in registers and go to several_pairs.cu or, of many rows, to several_wide.cu (way_of).
//
// When a tile is done, the block with the first chains adds them up in order and sends the sum to the other, which adds its own, chain after chain: the same arithmetic as for
// few and for many tokens. With the next tile they change roles. None of it is waited for: sums lie in shared memory until the next tile is a quarter done, when they are sent, or three quarters,
// when what the other block sent has long been there. (At the end of their own tile nearly a third of the head's time went into ends, a third of that into waiting for the other block; done by warps of their own,
// which leave fewer registers to the others, it gained half as much. When both read each other's chains, half of the rows each, the end of a tile took 10,000 cycles of 26,000: loads from the
// other's memory, and the barrier behind the results' stores.)
#include "cuda/kernels/several_tokens.h"

namespace ridge::cuda {
namespace several {

// Shared memory: ring of inputs [slot][own chain][NT] KB | rings of weights [group][slot][row tile][own chain] units | sums [own chain], then those of the other block's chains | gates.
template <class Unit, int RT, int NT>
struct Layout {
  using Sums = SumsOf<RT, NT>;
  static constexpr int kSlotTiles = Unit::kBytes >= 1024 ? 1 : RT, kParts = RT / kSlotTiles;
  static constexpr int kSlotBytes = kSlotTiles * kOwnChains * Unit::kBytes, kInputBytes = kOwnChains * NT * 1024;
  static constexpr int kGates = 1024, kInputs = Unit::kBytes >= 2048 ? 2 : RT == 1 ? 5 : 3;
  static constexpr int kFit = (kShared - kGates - (kOwnChains + 1) * Sums::kBytes - kInputs * kInputBytes) / (kGroups * kSlotBytes), kSlots = kFit < 12 ? kFit : 12;
  static constexpr int kRingsAt = kInputs * kInputBytes, kSumsAt = kRingsAt + kGroups * kSlots * kSlotBytes, kOthersAt = kSumsAt + kOwnChains * Sums::kBytes;
  static constexpr int kGatesAt = kOthersAt + Sums::kBytes, kBytes = kGatesAt + kGates;
  static_assert(kSlots >= 3 && RT % kSlotTiles == 0 && (2 * kGroups * kSlots + 2 * kInputs + 3) * 8 <= kGates && kBytes <= kShared);
};

}  // namespace several

namespace {

using namespace several;

template <class Unit, int RT, int NT>
__global__ void __launch_bounds__(kThreads, 1) several_tokens_kernel(const __grid_constant__ Several f) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<Unit, RT, NT>;
  RIDGE_DYNAMIC_SHARED(memory, 1024);
  Barrier* const gates = reinterpret_cast<uint64_t*>(memory + L::kGatesAt);
  constexpr int kSlots = L::kSlots, kLeft = kGroups * kSlots;      // [group][slot] arrived, then left
  Barrier* const input_arrived = gates + 2 * kLeft;
  Barrier* const input_left = input_arrived + L::kInputs;
  Barrier* const sent = input_left + L::kInputs;                             // the other block's sums to this one
  Barrier* const sums_there = sent + 1;                                      // those of this block, of a tile
  Barrier* const sums_left = sums_there + 1;
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0);        // the compiler sees that a warp agrees on it
  const int lane = __shfl_xor_sync(0xffffffffu, int(threadIdx.x % 32), 31) ^ 31;      // itself, by a way that the assembler does not go again in every round
  const int rank = blockIdx.x % kCluster, cluster = blockIdx.x / kCluster, n_clusters = gridDim.x / kCluster;
  const int n_steps = (f.n_units + kChains - 1) / kChains;
  start_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kLeft; ++i) init_barrier(gates + i, 1), init_barrier(gates + kLeft + i, kOwnChains * kWarpArrivals);
    for (int i = 0; i < L::kInputs; ++i) init_barrier(input_arrived + i, 1), init_barrier(input_left + i, kConsumers * kWarpArrivals);
    init_barrier(sent, 1), init_barrier(sums_there, kConsumers * kWarpArrivals), init_barrier(sums_left, kConsumers * kWarpArrivals);
    publish_barriers();
  }
  __syncthreads();
  arrive_started();

  const int n_inputs = f.n_places > cluster ? (f.n_places - cluster + n_clusters - 1) / n_clusters * n_steps : 0;      // steps, of all tiles of the block
  const auto first_unit = [](int step, int role) { return step * kChains + role * kOwnChains; };      // of a block's in a step
  const auto n_own_units = [&](int first) { return min(max(f.n_units - first, 0), kOwnChains); };
  const auto ask_input = [&](int step, int role, int slot) {
    const int first = first_unit(step, role), n = n_own_units(first) * (NT * 1024);
    arrive_expecting(input_arrived + slot, n);
    if (n > 0) copy_bulk(memory + slot * L::kInputBytes, f.x + int64_t{first} * NT * 1024, n, input_arrived + slot);
  };
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
        await_long(arrived + kLeft, phase);
        std::byte* const to = memory + L::kRingsAt + (group * kSlots + slot) * L::kSlotBytes;
        const int n = n_own_units(first_unit(step, role)) * Unit::kBytes;
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
        // The first also has the input, but for the first of it.
        int x_step = L::kInputs % n_steps, x_slot = 0, x_role = rank ^ (L::kInputs / n_steps & 1), n_left = n_inputs - L::kInputs;
        uint32_t x_phase = 0;
        const auto feed_input = [&] {
          if (n_left-- <= 0) return;
          await_long(input_left + x_slot, x_phase);
          ask_input(x_step, x_role, x_slot);
          if (++x_slot == L::kInputs) x_slot = 0, x_phase ^= 1;
          if (++x_step == n_steps) x_step = 0, x_role ^= 1;
        };
        for (int i = 0; i < kSlots; ++i) feed();
        await_predecessors();
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
  await_and_norm(f.norm, reinterpret_cast<float*>(memory + L::kSumsAt));
  // The first inputs are asked for by a warp that waits for them and norms nothing: the one that copies is still at the first weights when the kernel's predecessors have been done for long.
  constexpr int kNormWarps = kNormThreads / 32;
  static_assert(kNormWarps < kConsumers);
  if (warp == kNormWarps && lane == 0) {
    await_rows(f.norm);
#pragma unroll 1
    for (int i = 0, step = 0, role = rank; i < min(L::kInputs, n_inputs); ++i) {
      ask_input(step, role, i);
      if (++step == n_steps) step = 0, role ^= 1;
    }
  }
  __syncwarp();
  // A warp has a chain and the row tiles of a group.
  const int chain = warp % kOwnChains, group = warp / kOwnChains;
  const std::byte* const ring = memory + L::kRingsAt + group * kSlots * L::kSlotBytes + chain * Unit::kBytes;
  Barrier* const arrived = gates + group * kSlots;
  Barrier* const left = gates + kLeft + group * kSlots;
  float* const sums = reinterpret_cast<float*>(memory + L::kSumsAt);
  int slot = 0, x_slot = 0;
  uint32_t phase = 0, x_phase = 0;
  for (int nth = 0;; ++nth) {
    const int place = cluster + nth * n_clusters, role = (rank ^ nth) & 1;       // role: 0 has the first chains and sends, 1 has the others and finishes
    const bool has_tile = place < f.n_places;
    float acc[RT][NT][4];
    set_zero(acc);
    const auto input = [&] { return reinterpret_cast<const uint4*>(memory + x_slot * L::kInputBytes + chain * NT * 1024) + lane; };
    const auto leave_slot = [&] {
      __syncwarp();
      arrive_as_warp(left + slot, lane);
      if (++slot == kSlots) slot = 0, phase ^= 1;
    };
    const auto leave_input = [&] {
      __syncwarp();
      arrive_as_warp(input_left + x_slot, lane);
      if (++x_slot == L::kInputs) x_slot = 0, x_phase ^= 1;
    };
    const int n_own = has_tile ? max(f.n_units - role * kOwnChains - chain + kChains - 1, 0) / kChains : 0;      // steps that the chain has a unit in: all, or all but the last
    const auto multiply = [&](int n) {
#pragma unroll 1
      for (int step = 0; step < n; ++step) {
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
    };

    // On the way the tile before is ended, when what it takes has been there for a while: its sums are sent early, and those that were sent are added late.
    const int n_first = nth == 0 ? 0 : role == 1 ? n_own / 4 : n_own - n_own / 4;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      multiply(half == 0 ? n_first : n_own - n_first);
      if (half == 1 || nth == 0) continue;
      if (nth == 1) await_cluster();
      // What was sent two tiles ago has been read: the other block has sent its own since, which this one has read.
      const Ends<RT, NT, Several> ends{f, sums, reinterpret_cast<float*>(memory + L::kOthersAt), sent};
      const uint32_t ended = nth - 1;
      if (role == 1) {
        await(sums_there, ended & 1);
        ends.send_sums(rank ^ 1);
      } else {
        const auto own = ends.start_finish(place - n_clusters, true);
        await(sums_there, ended & 1);
        ends.finish(own, ended >> 1 & 1);
      }
      __syncwarp();
      arrive_as_warp(sums_left, lane);
      if (!has_tile) return;
    }
    if (n_own < n_steps) {                                                       // the others' last step
#pragma unroll
      for (int part = 0; part < L::kParts; ++part) await(arrived + slot, phase), leave_slot();
      await(input_arrived + x_slot, x_phase), leave_input();
    }

    // The tile's sums, chain by chain.
    if (nth > 0) await(sums_left, (nth - 1) & 1);
#pragma unroll
    for (int r = 0; r < RT; ++r) put_sums<RT, NT>(sums, acc[r], chain, group * RT + r, lane);
    __syncwarp();
    arrive_as_warp(sums_there, lane);
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

// How many times 64 rows a pair has or, where it is not 0, a block of several_wide.cu: the shortest of both, by the units that warps take one after the other. The input is
// fetched, and sums are added up, once for each place.
struct Way { int rt, w; };
template <class Unit>
Way way_of(int n_tiles, int n_units, const Launch& l) {
  const auto rounds = [&](int n_blocks, int tiles) { return ((n_tiles + tiles - 1) / tiles + n_blocks - 1) / n_blocks; };
  const auto in_pairs = [&](int rt) { return rounds(l.n_sms / kCluster, kGroups * rt); };
  const int rt = 2 * in_pairs(1) <= 3 * in_pairs(2) ? 1 : 2;
  if constexpr (kByWgmma<Unit>) {
    // In cycles: of a scheduler, as measured in nvfp4, a unit 210 in a pair and 165 in a wide block; of bf16 as long as it takes to read. What is not units 3,000 and 2,500.
    constexpr bool kIsBf16 = std::is_same_v<Unit, Bf16Unit>;
    constexpr int kInPair = kIsBf16 ? 422 : 210, kInWide = kIsBf16 ? 422 : 165;
    const auto length = [&](int w) { return rounds(l.n_sms, 4 * w) * (n_units * w * kInWide + 2500); };
    const int w = kIsBf16 || Unit::kScales > 0 || length(3) <= length(4) ? 3 : 4;
    const int n_steps = (n_units + kChains - 1) / kChains;
    if (length(w) <= in_pairs(rt) * (n_steps * rt * kOwnChains * kInPair + 3000)) return {rt, w};
  }
  return {rt, 0};
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
  const Way way = way_of<Unit>(f.activate ? 2 * f.n_tiles : f.n_tiles, f.n_units, l);
  if constexpr (kByWgmma<Unit>) {
    if (way.w > 0) wide<Unit>(f, way.w, NT, l);
    else pairs<Unit>(f, way.rt, NT, l);
  } else {
    if (way.rt == 1) launch<Unit, 1, NT>(f, l);
    else launch<Unit, 2, NT>(f, l);
  }
}

bool by_wgmma(const Matmul& op) {
  return with_unit(first_of(op), [](auto unit) { return kByWgmma<decltype(unit)>; });
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

// Twelve layers of an 8B model, tokens/s of batches of 5, 6, 7 and 8 as several and as few: nvfp4 6,393, 7,566, 8,664 and 9,566 of 6,794, 7,707, 8,325 and 9,269; fp8 4,935, 5,852, 6,779 and 7,419 of
// 4,986, 5,856, 6,507 and 7,222.
bool several_tokens_gain(const Matmul& op, const Launch& l) {
  constexpr int kFrom = 7;
  return op.x.rows >= kFrom && takes_several_tokens(op, l) && by_wgmma(op);
}

Lanes lanes_for(const Matmul& op, std::byte* data) {
  return {data, by_wgmma(op) && op.x.rows <= 8 ? 1 : op.x.rows <= 16 ? 2 : 4, takes_halves(first_of(op)), by_wgmma(op)};
}

void matmul_several_tokens(const Matmul& op, const Around& around, const Launch& l) {
  Several f{};
  for (int i = 0; i < 3; ++i)
    if (op.w[i]) f.part[f.n_parts++] = part_from(op, i);
  f.n_units = (int(op.x.cols) + kUnit - 1) / kUnit;
  f.n_tokens = int(op.x.rows);
  f.x = around.x_lanes ? around.x_lanes : l.matmul_scratch;
  if (const auto& norm = around.norm)
    f.norm = {.x = norm->x.f32(), .stride = norm->x.stride / 4, .weight = norm->weight.data ? norm->weight.f32() : nullptr, .weight_offset = norm->weight_offset, .eps = norm->eps,
              .cols = int(norm->x.cols), .n_rows = f.n_tokens, .lanes = lanes_for(op, l.matmul_scratch), .rows = l.normed_rows};
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
  with_unit(first_of(op), [&](auto unit) {
    using Unit = decltype(unit);
    if constexpr (kByWgmma<Unit>)
      if (lanes.n_groups == 1) return by_rows<Unit, 1>(f, l);
    if (lanes.n_groups == 2) by_rows<Unit, 2>(f, l);
    else by_rows<Unit, 4>(f, l);
  });
}

}  // namespace ridge::cuda
