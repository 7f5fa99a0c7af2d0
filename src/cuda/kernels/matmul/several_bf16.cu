// Matmul for several tokens (up to 32) whose weights are bf16. They need no decoding: the tensor cores take weights and input from shared memory, where copies have put them, so a warp has nothing to do
// but to ask for products. Hence one warpgroup for 64 rows has all chains of the block at once, each with sums of its own in registers, units come one after the other as they lie in memory, and the ring is all
// that a multiprocessor has.
//
// Of many rows (gate and up, the head) a block has 192 and all eight chains, as in several_wide.cu; else a pair of blocks has 64 or 128, each with four of the chains, as in several_pairs.cu.
#include "cuda/kernels/matmul/several_tokens.h"

namespace ridge::cuda::several {
namespace {

constexpr int kCopiersOfPlace = 4;                                            // the first has the input, two or three others the weights

// R: times 64 rows, a warpgroup each. A slot is a unit of each row.
// Shared memory: inputs [slot][NT] KB | weights [slot][row tile] units | sums, in pairs those of the other block's chains | factors of a norm | gates. In pairs those of its own chains lie over inputs and
// weights when these have been multiplied.
template <int R, bool kPair, int NT>
struct Whole {
  static constexpr int kOwn = kPair ? kOwnChains : kChains, kTiles = R * kGroups, kTeams = R == 1 ? 2 : R;      // with one, another helps with factors and ends
  static constexpr int kMultiplying = kTeams * 128, kThreads = kMultiplying + kCopiersOfPlace * 32, kWeightCopiers = kPair ? 2 : 3;
  static constexpr int kSlotBytes = kTiles * Bf16Unit::kBytes, kInputBytes = NT * 1024, kSumBytes = NT * 8 * (kTiles * kTileRows + 4) * 4;
  static constexpr int kFactorBytes = kMostSeveral * 4, kGates = 512, kFit = (kShared - kFactorBytes - kGates - kSumBytes) / (kSlotBytes + kInputBytes), kSlots = kFit < 24 ? kFit : 24;
  static constexpr int kRingAt = kSlots * kInputBytes, kSumsAt = kRingAt + kSlots * kSlotBytes, kFactorsAt = kSumsAt + kSumBytes, kGatesAt = kFactorsAt + kFactorBytes, kBytes = kGatesAt + kGates;
  static_assert(kTiles % kWeightCopiers == 0 && (2 * kSlots + 2) * 8 <= kGates && kBytes <= kShared);
  static_assert(!kPair || kOwn * kSumBytes <= kSumsAt);
};

// F: Several, or SeveralPlain for o and down.
template <int R, bool kPair, int NT, class F>
__global__ void __launch_bounds__((Whole<R, kPair, NT>::kThreads), 1) several_bf16_kernel(const __grid_constant__ F f) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Whole<R, kPair, NT>;
  RIDGE_DYNAMIC_SHARED(memory, 1024);
  constexpr int kSlots = L::kSlots, kOwn = L::kOwn, kTiles = L::kTiles;
  Barrier* const arrived = reinterpret_cast<uint64_t*>(memory + L::kGatesAt);
  Barrier* const left = arrived + kSlots;
  Barrier* const sent = left + kSlots;                                        // the other block's sums to this one
  Barrier* const met = sent + 1;                                              // those that multiply
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0), lane = threadIdx.x % 32;      // the compiler sees that a warp agrees on it
  const int role = kPair ? blockIdx.x % kCluster : 0;                          // of a pair 0 has the first chains and sends, 1 has the others and finishes
  const int first_place = kPair ? blockIdx.x / kCluster : blockIdx.x, n_blocks = kPair ? gridDim.x / kCluster : gridDim.x;
  const int n_full = f.n_units / kChains, n_rest = min(max(f.n_units % kChains - role * kOwn, 0), kOwn);      // steps of a unit of each chain, and units of one more
  start_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) init_barrier(arrived + i, 1 + L::kWeightCopiers), init_barrier(left + i, R * 4 * kWarpArrivals);
    init_barrier(sent, 1), make_meeting(met, L::kMultiplying);
    publish_barriers();
  }
  __syncthreads();
  if (kPair) arrive_started();

  const int copier = warp - L::kTeams * 4;
  if (copier >= 0) {
    if (!kPair) shrink_registers<32>();
    if (copier <= L::kWeightCopiers && lane == 0) {
      int slot = 0;
      uint32_t phase = 1;                                                     // the first time round a slot is free
      // find(place), then copy(slot, unit) for each of its units; n_bytes arrive with each.
      const auto copy_all = [&](int n_bytes, const auto& find, const auto& copy) {
#pragma unroll 1
        for (int place = first_place; place < f.n_places; place += n_blocks) {
          find(place);
#pragma unroll 1
          for (int step = 0; step <= n_full; ++step) {
            const int first = step * kChains + role * kOwn, n = step < n_full ? kOwn : n_rest;
#pragma unroll 1
            for (int unit = first; unit < first + n; ++unit) {
              await_long(left + slot, phase);
              arrive_expecting(arrived + slot, n_bytes);
              copy(slot, unit);
              if (++slot == kSlots) slot = 0, phase ^= 1;
            }
          }
        }
      };
      if (copier == 0) {
        await_predecessors();
        copy_all(L::kInputBytes, [](int) {}, [&](int slot, int unit) { copy_bulk(memory + slot * L::kInputBytes, f.x + int64_t{unit} * L::kInputBytes, L::kInputBytes, arrived + slot); });
      } else {
        constexpr int kOwnTiles = kTiles / L::kWeightCopiers;
        const int first_tile = (copier - 1) * kOwnTiles;
        const uint64_t policy = read_once();
        const std::byte* tiles[kOwnTiles];
        copy_all(
            kOwnTiles * Bf16Unit::kBytes,
            [&](int place) {
#pragma unroll
              for (int r = 0; r < kOwnTiles; ++r) {
                const auto at = [&] {
                  if constexpr (kPair) return Place<R>(f, place, first_tile + r);
                  else return WidePlace(f, place, kTiles, first_tile + r);
                }();
                const GemmPart& p = f.part[at.which];
                tiles[r] = p.units + int64_t{min(at.tile, (p.rows - 1) / kTileRows)} * f.n_units * Bf16Unit::kBytes;
              }
            },
            [&](int slot, int unit) {
              std::byte* const to = memory + L::kRingAt + slot * L::kSlotBytes + first_tile * Bf16Unit::kBytes;
#pragma unroll
              for (int r = 0; r < kOwnTiles; ++r) copy_bulk(to + r * Bf16Unit::kBytes, tiles[r] + int64_t{unit} * Bf16Unit::kBytes, Bf16Unit::kBytes, arrived + slot, policy);
            });
      }
    }
    if (kPair) await_cluster();
    return;
  }

  if (!kPair) grow_registers<160>();
  float* const factors = reinterpret_cast<float*>(memory + L::kFactorsAt);
  await_predecessors();
  if (f.norms() && role == kPair) make_factors<L::kTeams * 4, NT * 8>(f.norm, f.n_tokens, warp, lane, factors);
  const int team = warp / 4;
  int slot = 0, before = -1;                                                   // before: the slot of the unit before
  uint32_t phase = 0;
#pragma unroll 1
  for (int place = first_place; place < f.n_places; place += n_blocks) {
    float acc[kOwn][NT][4];
#pragma unroll
    for (int c = 0; c < kOwn; ++c) set_zero(acc[c]), hold_all(acc[c]);
    const auto multiply_unit = [&](float (&acc)[NT][4]) {
      await(arrived + slot, phase);
      const uint64_t a = wgmma_units(memory + L::kRingAt + slot * L::kSlotBytes + team * (kGroups * Bf16Unit::kBytes)), b = wgmma_tile(memory + slot * L::kInputBytes);
      wgmma_fence();
#pragma unroll
      for (int t = 0; t < 4; ++t) wgmma_groups(acc, a + 16 * t, b + 2 * t);
      wgmma_commit();
      wgmma_await<1>();                                                        // the unit before has been multiplied
      if (before >= 0) arrive_as_warp(left + before, lane);
      before = slot;
      if (++slot == kSlots) slot = 0, phase ^= 1;
    };
    if (L::kTeams == R || team < R) {
#pragma unroll 1
      for (int step = 0; step < n_full; ++step) {
#pragma unroll
        for (int c = 0; c < kOwn; ++c) multiply_unit(acc[c]);
      }
      wgmma_await<0>();                                                        // ptxas, which sees sums moved where ways meet, would else have every product waited for
#pragma unroll
      for (int c = 0; c < kOwn; ++c) hold_all(acc[c]);
#pragma unroll
      for (int c = 0; c < kOwn; ++c)
        if (c < n_rest) multiply_unit(acc[c]), wgmma_await<0>(), hold_all(acc[c]);
    }

    float* const sums = reinterpret_cast<float*>(memory + (kPair ? 0 : L::kSumsAt));
    if constexpr (kPair) {
      const Ends<R, NT, F, L::kMultiplying> ends{f, sums, reinterpret_cast<float*>(memory + L::kSumsAt), sent, factors};
      const auto own = ends.start_finish(place, role == 1);
      meet(met, 1, L::kMultiplying);                                           // all of the ring has been multiplied
      if (L::kTeams == R || team < R) {
#pragma unroll
        for (int c = 0; c < kOwn; ++c) put_sums<R, NT>(sums, acc[c], c, warp, lane);
      }
      await_cluster();                                                         // the other block has started, and can be sent to
      meet(met, 1, L::kMultiplying);
      if (role == 0) ends.send_sums(1);
      else ends.finish(own, 0);
      return;
    } else {
      if (before >= 0) arrive_as_warp(left + before, lane);
      before = -1;
      float sum[NT][4];
      set_zero(sum);
#pragma unroll
      for (int c = 0; c < kOwn; ++c) {
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[n][i] += acc[c][n][i];
      }
      finish_place<kTiles, NT>(f, place, sums, sum, warp, lane, met, factors);
    }
  }
#endif
}

template <int R, bool kPair, int NT, class F>
void launch(F f, const Launch& l) {
  using L = Whole<R, kPair, NT>;
  const auto kernel = several_bf16_kernel<R, kPair, NT, F>;
  static const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);      // where it is not, the launch fails
  (void)allowed;
  const int per_place = f.activate ? L::kTiles / 2 : L::kTiles;
  f.n_places = (f.n_tiles + per_place - 1) / per_place;
  if (kPair) launch_kernel_as({.cluster = kCluster}, kernel, dim3(f.n_places * kCluster), L::kThreads, L::kBytes, l.stream, f);
  else launch_kernel(kernel, dim3(std::min(f.n_places, l.n_sms)), L::kThreads, L::kBytes, l.stream, f);
}

template <int NT>
void by_rows(const Several& f, int rt, const Launch& l) {
  if (rt == 2) launch<2, true, NT>(f, l);
  else if (f.activate || f.n_parts > 1 || f.norms()) launch<1, true, NT>(f, l);
  else launch<1, true, NT>(SeveralPlain{f}, l);
}

}  // namespace

template <>
void pairs<Bf16Unit>(const Several& f, int rt, int n_groups, const Launch& l) {
  n_groups == 1 ? by_rows<1>(f, rt, l) : n_groups == 2 ? by_rows<2>(f, rt, l) : by_rows<4>(f, rt, l);
}
template <>
void wide<Bf16Unit>(const Several& f, int /*w*/, int n_groups, const Launch& l) {
  n_groups == 1 ? launch<3, false, 1>(f, l) : n_groups == 2 ? launch<3, false, 2>(f, l) : launch<3, false, 4>(f, l);
}

}  // namespace ridge::cuda::several
