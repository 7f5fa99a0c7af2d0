// Matmul for several tokens (up to 32) whose weights are decoded in registers and multiplied by wgmma, in pairs of blocks: q, k and v, o, down. A pair has 64 x RT rows (RT: 1 to 3), and each
// of its blocks four of the eight chains of inputs (unit u belongs to chain u mod 8). Here a pair has one such place and no other: all that it needs is asked for at once as far as its ring goes, its
// sums lie where the ring was, and so the ring holds a third more steps (with 32 tokens all of o, six of the eight of q, k and v). That and a warp for the input alone gave 4.0, 1.3 and 2.0 % more tokens at
// batches of 32, 16 and 8 than rounds of places in pairs that stay, with sums of their own.
//
// A warpgroup has one of the block's chains, and a warp of it every fourth row tile. A step is a unit of each of them, or with RT = 1 two units of the one. Weights and input of a step arrive at one gate and leave by one.
//
// Tried and not kept: pairs that have the same chains of twice the rows, each bringing half of a step's input to both (53 MB from the second-level cache for down of an 8B model instead of 78), the other
// chains being another pair's, which gets the sums in a relay: 29,682 tokens/s of 30,226 (twelve layers at batch 32; before this kernel 29,054).
//
// When a place is done, the block with the first chains adds them up in order and sends the sum to the other, which adds its own, chain after chain: the same arithmetic as for few and for many tokens.
#include "cuda/kernels/matmul/several_tokens.h"

namespace ridge::cuda::several {

// Shared memory: inputs [slot][kDeep][own chain][NT] KB | weights [slot][row tile][kDeep][own chain] units | sums of the other block's chains | factors of a norm | gates | ones. Those of its own chains lie over
// inputs and weights when these have been multiplied.
template <class Unit, int RT, int NT>
struct Pairs {
  using Sums = SumsOf<RT, NT>;
  static constexpr int kDeep = RT == 1 ? 2 : 1;                                // units of a chain in a step
  static constexpr int kTiles = kGroups * RT, kTileBytes = kDeep * kOwnChains * Unit::kBytes, kSlotBytes = kTiles * kTileBytes, kPartBytes = kOwnChains * NT * 1024, kInputBytes = kDeep * kPartBytes;
  static constexpr int kFactorBytes = kMostSeveral * 4, kGates = 192, kFit = (kShared - kFactorBytes - kGates - Sums::kBytes - kOnesBytes<Unit>) / (kSlotBytes + kInputBytes), kSlots = kFit < 8 ? kFit : 8;
  static constexpr int kRingAt = kSlots * kInputBytes, kSentAt = kRingAt + kSlots * kSlotBytes, kFactorsAt = kSentAt + Sums::kBytes, kGatesAt = kFactorsAt + kFactorBytes, kOnesAt = kGatesAt + kGates, kBytes = kOnesAt + kOnesBytes<Unit>;
  static_assert(kSlots >= 3 && kOwnChains * Sums::kBytes <= kSentAt && (2 * kSlots + 2) * 8 <= kGates && kBytes <= kShared);
};

namespace {

// F: Several, or SeveralPlain for o and down. (Norms were 550 instructions when blocks made them: without them and with one weight, down of 8, 16 and 32 tokens takes 0.6, 0.6 and 0.4 us less, although none of it ran.)
template <class Unit, int RT, int NT, class F>
__global__ void __launch_bounds__(kThreads, 1) several_pairs_kernel(const __grid_constant__ F f) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Pairs<Unit, RT, NT>;
  RIDGE_DYNAMIC_SHARED(memory, 1024);
  constexpr int kSlots = L::kSlots, kDeep = L::kDeep, kTiles = L::kTiles;
  Barrier* const arrived = reinterpret_cast<uint64_t*>(memory + L::kGatesAt);
  Barrier* const left = arrived + kSlots;
  Barrier* const sent = left + kSlots;                                       // the other block's sums to this one
  Barrier* const met = sent + 1;                                             // those that multiply
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0);        // the compiler sees that a warp agrees on it
  const int lane = __shfl_xor_sync(0xffffffffu, int(threadIdx.x % 32), 31) ^ 31;      // itself, by a way that the assembler does not go again in every round
  const int role = blockIdx.x % kCluster, place = blockIdx.x / kCluster;     // role: 0 has the first chains and sends, 1 has the others and finishes
  constexpr int kWeightCopiers = 2;                                          // beside one that has the input; the fourth is there because registers are given back by four warps
  constexpr int kEarly = 3;                                                  // steps of weights that are asked for before the input of a norm: with more on their way, it comes late
  static_assert(kEarly <= kSlots, "or the copier waits for a phase of the first slot that is over");
  start_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) init_barrier(arrived + i, 1 + kWeightCopiers), init_barrier(left + i, kConsumers * kWarpArrivals);
    init_barrier(sent, 1), make_meeting(met, kConsumers * 32);
    publish_barriers();
  }
  put_ones<Unit>(memory + L::kOnesAt);
  __syncthreads();
  arrive_started();

  if (warp >= kConsumers) {
    shrink_registers<32>();
    if (const int copier = warp - kConsumers; copier <= kWeightCopiers && lane == 0) {
      const int n_steps = (f.n_units + kDeep * kChains - 1) / (kDeep * kChains);
      const auto first_unit = [&](int step, int d) { return (step * kDeep + d) * kChains + role * kOwnChains; };
      // copy(slot, depth, its first unit, how many) of each step, whose units are unit_bytes each in all.
      const auto copy_all = [&](int unit_bytes, const auto& copy) {
        int slot = 0;
        uint32_t phase = 1;                                                    // the first time round a slot is free
#pragma unroll 1
        for (int step = 0; step < n_steps; ++step) {
          int n[kDeep], n_all = 0;
#pragma unroll
          for (int d = 0; d < kDeep; ++d) n_all += n[d] = min(max(f.n_units - first_unit(step, d), 0), kOwnChains);
          await_long(left + slot, phase);
          arrive_expecting(arrived + slot, n_all * unit_bytes);
#pragma unroll
          for (int d = 0; d < kDeep; ++d)
            if (n[d] > 0) copy(slot, d, first_unit(step, d), n[d]);
          if (++slot == kSlots) slot = 0, phase ^= 1;
        }
      };
      if (copier == 0) {
        await_predecessors();
        copy_all(NT * 1024, [&](int slot, int d, int unit, int n) {
          copy_bulk(memory + slot * L::kInputBytes + d * L::kPartBytes, f.x + int64_t{unit} * (NT * 1024), n * (NT * 1024), arrived + slot);
        });
      } else {
        constexpr int kOwnTiles = kTiles / kWeightCopiers;
        const int first_tile = (copier - 1) * kOwnTiles;
        const std::byte* tiles[kOwnTiles];
#pragma unroll
        for (int r = 0; r < kOwnTiles; ++r) {
          const Place<RT> at(f, place, first_tile + r);
          const GemmPart& p = f.part[at.which];
          tiles[r] = p.units + int64_t{min(at.tile, (p.rows - 1) / kTileRows)} * f.n_units * Unit::kBytes;
        }
        const uint64_t policy = read_once();
        int n_early = f.norms() ? kEarly + 1 : 0;
        copy_all(kOwnTiles * Unit::kBytes, [&](int slot, int d, int unit, int n) {
          if (d == 0 && --n_early == 0) await_long(arrived, 0);                // the others when the first step is there
          std::byte* const to = memory + L::kRingAt + slot * L::kSlotBytes + first_tile * L::kTileBytes + d * (kOwnChains * Unit::kBytes);
#pragma unroll
          for (int r = 0; r < kOwnTiles; ++r) copy_bulk(to + r * L::kTileBytes, tiles[r] + int64_t{unit} * Unit::kBytes, n * Unit::kBytes, arrived + slot, policy);
        });
      }
    }
    await_cluster();
    return;
  }

  grow_registers<112>();
  float* const factors = reinterpret_cast<float*>(memory + L::kFactorsAt);
  await_predecessors();
  if (f.norms() && role == 1) make_factors<kConsumers, NT * 8>(f.norm, f.n_tokens, warp, lane, factors);
  const int chain = warp / 4, tile = warp % 4;
  const std::byte* const ring = memory + L::kRingAt + tile * L::kTileBytes + chain * Unit::kBytes;
  const uint64_t inputs = wgmma_tile(memory + chain * NT * 1024);
  constexpr int kUnits = RT * kDeep;                                           // of a step
  const int n_own = max(f.n_units - role * kOwnChains - chain + kChains - 1, 0) / kChains, n_steps = n_own / kDeep;      // with RT = 1 the last step may have one unit only
  const bool rest = n_own % kDeep > 0;
  float acc[RT][NT][4];
  set_zero(acc);
  int slot = 0;
  uint32_t phase = 0;
  const auto next_slot = [&] {
    if (++slot == kSlots) slot = 0, phase ^= 1;
  };
  const auto unit_at = [&](int slot, int nth) { return ring + slot * L::kSlotBytes + nth * (RT == 1 ? kOwnChains * Unit::kBytes : kGroups * L::kTileBytes); };
  const auto input_at = [&](int slot, int nth) { return inputs + uint32_t(slot * (L::kInputBytes >> 4) + (RT == 1 ? nth * (L::kPartBytes >> 4) : 0)); };
  if constexpr (Unit::kScales > 0) {
    static_assert(kUnits == 2);
    ScaledRun<Unit, NT> run;
    run.ones = memory + L::kOnesAt;
    const auto acc_of = [&](int nth) -> float (&)[NT][4] { return acc[nth % RT]; };
    if (n_own > 0) {
      await(arrived, 0);
      run.held[0] = Opened<Unit>::open(unit_at(0, 0), lane);
      run.start();
    }
    int now = 0;
    const auto unit = [&](int nth) { return unit_at(now, nth); };
    const auto input = [&](int nth) { return input_at(now, nth); };
#pragma unroll 1
    for (int step = 1; step <= n_steps; ++step) {
      now = slot;
      run.template multiply<2>(
          lane, unit, input, acc_of,
          [&](int nth) {
            if (nth == 1) {
              next_slot();
              if (step == n_steps && !rest) return false;
              await(arrived + slot, phase);
            }
            run.held[1 - nth] = Opened<Unit>::open(unit_at(slot, 1 - nth), lane);
            return true;
          },
          [&](int nth) {
            if (nth == 1) arrive_as_warp(left + now, lane);
          });
    }
    now = slot;
    if (rest) run.template multiply<1>(lane, unit, input, acc_of, [](int) { return false; }, [](int) {});
  } else {
    using Own = Opened<Unit>;
    typename Own::Held held[kUnits];
    uint32_t a[2][2][4];
    int before = -1;                                                           // the slot of the step before
    // While a half of a unit is multiplied, the operands of the next are decoded.
    const auto multiply_unit = [&](auto nth_of_step, bool more) {
      constexpr int nth = nth_of_step, next = (nth + 1) % kUnits;
      const int now = slot;
      const uint64_t b = input_at(now, nth);
      if (next == 0) next_slot();
      if (more) {
        if (next == 0) await(arrived + slot, phase);
        held[next] = Own::open(unit_at(slot, next), lane);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        wgmma_await<1>();                                                        // the same half of the unit before has been multiplied, and with the second half all of that unit
        if (nth == 0 && h == 1 && before >= 0) arrive_as_warp(left + before, lane);
#pragma unroll
        for (int t = 0; t < 2; ++t) Own::take(a[h][t], held[nth], 2 * h + t);
        wgmma_fence();
#pragma unroll
        for (int t = 0; t < 2; ++t) wgmma_groups(acc[nth % RT], a[h][t], b + 2 * (2 * h + t));
        wgmma_commit();
      }
      if (next == 0) before = now;
    };
    using First = std::integral_constant<int, 0>;
    if (n_own > 0) {
      await(arrived, 0);
      held[0] = Own::open(unit_at(0, 0), lane);
    }
#pragma unroll 1
    for (int step = 1; step <= n_steps; ++step) {
      multiply_unit(First{}, true);
      if constexpr (kUnits == 3) multiply_unit(std::integral_constant<int, 1>{}, true);
      multiply_unit(std::integral_constant<int, kUnits - 1>{}, step < n_steps || rest);
    }
    if (rest) multiply_unit(First{}, false);
  }

  float* const sums = reinterpret_cast<float*>(memory);
  const Ends<RT, NT, F> ends{f, sums, reinterpret_cast<float*>(memory + L::kSentAt), sent, factors};
  const auto own = ends.start_finish(place, role == 1);
  wgmma_await<0>();
#pragma unroll
  for (int r = 0; r < RT; ++r) hold_all(acc[r]);
  meet(met, 1, kConsumers * 32);                                               // all of the ring has been multiplied
#pragma unroll
  for (int r = 0; r < RT; ++r) put_sums<RT, NT>(sums, acc[r], chain, tile + r * kGroups, lane);
  await_cluster();                                                             // the other block has started, and can be sent to
  meet(met, 1, kConsumers * 32);
  if (role == 0) ends.send_sums(1);
  else ends.finish(own, 0);
#endif
}

template <class Unit, int RT, int NT, class F>
void launch(const F& f, const Launch& l) {
  using L = Pairs<Unit, RT, NT>;
  const auto kernel = several_pairs_kernel<Unit, RT, NT, F>;
  static const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);      // where it is not, the launch fails
  (void)allowed;
  const int per_place = f.activate ? L::kTiles / 2 : L::kTiles;
  launch_kernel_as({.cluster = kCluster}, kernel, dim3((f.n_tiles + per_place - 1) / per_place * kCluster), kThreads, L::kBytes, l.stream, f);
}

template <class Unit, int NT>
void by_tiles(const Several& f, int rt, const Launch& l) {
  if constexpr (Unit::kScales == 0)
    if (rt == 3) return launch<Unit, 3, NT>(f, l);
  if (rt == 2) launch<Unit, 2, NT>(f, l);
  else if (f.activate || f.n_parts > 1 || f.norms()) launch<Unit, 1, NT>(f, l);
  else launch<Unit, 1, NT>(SeveralPlain{f}, l);
}

}  // namespace

template <class Unit>
void pairs(const Several& f, int rt, int n_groups, const Launch& l) {
  n_groups == 1 ? by_tiles<Unit, 1>(f, rt, l) : n_groups == 2 ? by_tiles<Unit, 2>(f, rt, l) : by_tiles<Unit, 4>(f, rt, l);
}
template void pairs<Nvfp4Unit>(const Several&, int, int, const Launch&);
template void pairs<Mxfp4Unit>(const Several&, int, int, const Launch&);
template void pairs<Fp8Unit<false>>(const Several&, int, int, const Launch&);
template void pairs<Fp8Unit<true>>(const Several&, int, int, const Launch&);
template void pairs<Q8Unit>(const Several&, int, int, const Launch&);
template void pairs<Q4Unit>(const Several&, int, int, const Launch&);
template void pairs<Q41Unit>(const Several&, int, int, const Launch&);

}  // namespace ridge::cuda::several
