// Matmul for several tokens (up to 32) whose weights are decoded in registers and have many rows: gate and up, the head. What pairs of blocks lose there are the ends of their tiles,
// a fifth of the time, for the eight chains of a tile lie in 16 warps of two blocks. Here a place is w x 64 rows (w: 3 or 4) of one block, and a warp has all chains of its row tile: C at a time,
// which are then added to the sum in order. So nothing is exchanged, gate and up of an 8B model (in nvfp4: 192 rows) are one place for each of 128 blocks, and its head six.
//
// It is bound by the instructions of its warps, three a scheduler, which issues in six of ten cycles. Of 69 a unit 48 decode it and four multiply. Hence code is laid out for a group of
// slots (addresses are constants in it), a unit is one batch of wgmma (in halves, and with slots one by one: 82 to 102 instructions), descriptors stay in uniform registers (a value that was
// exchanged within the warp is known to be the same in all its lanes: 62 instructions less in eight units; added to as 64 bits, 34 less), and of the copying warps one has the input and three the weights.
// Pairs of blocks that share the input of a place, each bringing half of it to both, gave nothing (head 112 us of 113): 4.9 TB/s from the second-level cache is not what binds.
//
// What does not fit this shape stays with several_pairs.cu. Blocks that share a place by their chains, and send each other sums through relays (lib/relay.h) instead of a pair's shared
// memory, were slower for q, k and v, o and down: 14.3, 15.1 and 19.0 us of 13.5, 10.7 and 18.3.
#include "cuda/kernels/matmul/several_tokens.h"

namespace ridge::cuda::several {
namespace {

constexpr int kWideCopiers = 4;                                               // the first has the input, the others the weights
constexpr int kEarly = 2;                                                     // steps of weights that are asked for before the input of a norm: with more on their way, it comes late

// Chains at a time: as many as registers and, for units of 1 KB, shared memory have room for.
template <class Unit, int W> constexpr int kAtOnce = W == 3 && Unit::kBytes < 1024 && Unit::kScales == 0 ? 4 : 2;

// A step is a unit of each of C chains, a slot holds a step; code is laid out for kGroup steps.
// Shared memory: gates, factors of a norm | ones | inputs [slot][chain][NT] KB | weights [slot][row tile][chain] units | sums [token][kRows + 4].
template <class Unit, int W, int NT>
struct Wide {
  static constexpr int C = kAtOnce<Unit, W>;
  static constexpr int kTiles = 4 * W, kRows = kTiles * kTileRows, kMultiplying = kTiles * 32, kThreads = kMultiplying + kWideCopiers * 32;
  static constexpr int kSumBytes = NT * 8 * (kRows + 4) * 4;
  static constexpr int kTileBytes = C * Unit::kBytes, kSlotBytes = kTiles * kTileBytes, kInputBytes = C * NT * 1024;
  static constexpr int kGates = 1024, kFactorsAt = kGates - kMostSeveral * 4, kOnesAt = kGates, kInputsAt = (kGates + kOnesBytes<Unit> + 1023) / 1024 * 1024, kFit = (kShared - kInputsAt - kSumBytes) / (kSlotBytes + kInputBytes);
  static constexpr int kGroup = 8 / C < kFit / 2 ? 8 / C : 2, kGroupUnits = kGroup * C, kSlots = kFit / kGroup * kGroup;
  static constexpr int kRingAt = kInputsAt + kSlots * kInputBytes, kSumsAt = kRingAt + kSlots * kSlotBytes, kBytes = kSumsAt + kSumBytes;
  static_assert(kGroupUnits % 2 == 0 && kSlots >= 2 * kGroup && (2 * kSlots + 2) * 8 <= kFactorsAt && kSumsAt % 16 == 0 && kBytes <= kShared);
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Units without scales for sums, one after the other.
template <class Unit>
struct PlainRun {
  typename Opened<Unit>::Held held[2];
  uint32_t a[2][4][4];
  template <int NT>
  __device__ void multiply(int u, float (&acc)[NT][4], uint64_t b) {
#pragma unroll
    for (int t = 0; t < 4; ++t) Opened<Unit>::take(a[u % 2][t], held[u % 2], t);
#pragma unroll
    for (int t = 0; t < 4; ++t) hold(a[u % 2][t]);
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < 4; ++t) wgmma_groups(acc, a[u % 2][t], b + 2 * t);
    wgmma_commit();
  }
};

#endif

template <class Unit, int W, int NT>
__global__ void __launch_bounds__((Wide<Unit, W, NT>::kThreads), 1) several_wide_kernel(const __grid_constant__ Several f) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Wide<Unit, W, NT>;
  RIDGE_DYNAMIC_SHARED(memory, 1024);
  constexpr int C = L::C, kSlots = L::kSlots, kTiles = L::kTiles, kGroup = L::kGroup, kGroupUnits = L::kGroupUnits;
  constexpr bool kScaled = Unit::kScales > 0;
  static_assert(kEarly <= kSlots, "or the copier waits for a phase of the first slot that is over");
  Barrier* const arrived = reinterpret_cast<uint64_t*>(memory);
  Barrier* const left = arrived + kSlots;
  Barrier* const met = left + kSlots;                                         // those that multiply
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0);        // the compiler sees that a warp agrees on it
  const int lane = __shfl_xor_sync(0xffffffffu, int(threadIdx.x % 32), 31) ^ 31;      // itself, by a way that the assembler does not go again in every round
  // Chains are taken C at a time, over all their steps, in whole groups.
  const auto units_of = [&](int chain) { return max(f.n_units - chain + kChains - 1, 0) / kChains; };
  const auto n_groups = [&](int chain) { return max((units_of(chain) + kGroup - 1) / kGroup, 1); };
  start_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) init_barrier(arrived + i, kWideCopiers), init_barrier(left + i, kTiles * kWarpArrivals);
    make_meeting(met, L::kMultiplying);
    publish_barriers();
  }
  put_ones<Unit>(memory + L::kOnesAt);
  __syncthreads();

  if (warp >= kTiles) {
    shrink_registers<32>();
    if (lane != 0) return;
    const int copier = warp - kTiles;
    int slot = 0;
    uint32_t phase = 1;                                                       // the first time round a slot is free
    // find(place), then copy(slot, its first unit, how many) of each of its steps.
    const auto copy_all = [&](const auto& find, const auto& copy) {
#pragma unroll 1
      for (int place = blockIdx.x; place < f.n_places; place += gridDim.x) {
        find(place);
#pragma unroll 1
        for (int chain = 0; chain < kChains; chain += C) {
          int unit = chain;
#pragma unroll 1
          for (int step = n_groups(chain) * kGroup; step > 0; --step, unit += kChains) {
            await_long(left + slot, phase);
            copy(slot, unit, min(max(f.n_units - unit, 0), C));
            if (++slot == kSlots) slot = 0, phase ^= 1;
          }
        }
      }
    };
    if (copier == 0) {
      await_predecessors();
      copy_all([](int) {},
               [&](int slot, int unit, int n) {
                 n *= NT * 1024;
                 arrive_expecting(arrived + slot, n);
                 if (n > 0) copy_bulk(memory + L::kInputsAt + slot * L::kInputBytes, f.x + int64_t{unit} * (NT * 1024), n, arrived + slot);
               });
      return;
    }
    constexpr int kApart = kWideCopiers - 1, kMost = (kTiles + kApart - 1) / kApart;      // row tiles: every third
    const int n_own = (kTiles - copier + kApart) / kApart;
    const uint64_t policy = read_once();
    int n_early = f.norms() ? kEarly + 1 : 0;
    const std::byte* tiles[kMost];
    copy_all(
        [&](int place) {
#pragma unroll
          for (int r = 0; r < kMost; ++r) {
            const WidePlace at(f, place, kTiles, min(copier - 1 + r * kApart, kTiles - 1));
            const GemmPart& p = f.part[at.which];
            tiles[r] = p.units + int64_t{min(at.tile, (p.rows - 1) / kTileRows)} * f.n_units * Unit::kBytes;
          }
        },
        [&](int slot, int unit, int n) {
          if (--n_early == 0) await_long(arrived, 0);                         // the others when the first step is there
          n *= Unit::kBytes;
          arrive_expecting(arrived + slot, n * n_own);
          if (n == 0) return;
          std::byte* const to = memory + L::kRingAt + slot * L::kSlotBytes + (copier - 1) * L::kTileBytes;
#pragma unroll
          for (int r = 0; r < kMost; ++r)
            if (kTiles % kApart == 0 || r < n_own) copy_bulk(to + r * kApart * L::kTileBytes, tiles[r] + int64_t{unit} * Unit::kBytes, n, arrived + slot, policy);
        });
    return;
  }

  grow_registers<W == 3 ? (kScaled ? 160 : 152) : 112>();
  float* const factors = reinterpret_cast<float*>(memory + L::kFactorsAt);
  await_predecessors();
  if (f.norms()) make_factors<kTiles, NT * 8>(f.norm, f.n_tokens, warp, lane, factors);
  const int tile = warp;
  const std::byte* const ring = memory + L::kRingAt + tile * L::kTileBytes;
  const uint32_t inputs = uint32_t(wgmma_tile(memory + L::kInputsAt));
  float* const sums = reinterpret_cast<float*>(memory + L::kSumsAt);
  using Own = Opened<Unit>;
  std::conditional_t<kScaled, ScaledRun<Unit, NT>, PlainRun<Unit>> run;
  int base = 0;                                                                // the first slot of the group, whose first unit is open
  uint32_t phase = 0;
  await(arrived, 0);
  run.held[0] = Own::open(ring, lane);
  if constexpr (kScaled) run.ones = memory + L::kOnesAt, run.start();
#pragma unroll 1
  for (int place = blockIdx.x; place < f.n_places; place += gridDim.x) {
    float sum[NT][4];
    set_zero(sum);
#pragma unroll 1
    for (int first = 0; first < kChains; first += C) {
      float acc[C][NT][4];
      set_zero(acc);
      int n_units = 0;
#pragma unroll
      for (int c = 0; c < C; ++c) n_units += units_of(first + c);
      const int n_full = n_units / kGroupUnits;                                // groups
      const bool rest = n_full < n_groups(first), last = first + C == kChains && place + int(gridDim.x) >= f.n_places;
      const auto acc_of = [&](int u) -> float (&)[NT][4] { return acc[u % C]; };
      const auto leave = [&](int slot) { arrive_as_warp(left + slot, lane); };
      const auto go_on = [&](bool more) {
        base = base + kGroup == kSlots ? 0 : base + kGroup;
        phase ^= uint32_t(base == 0);
        if (more) {
          await(arrived + base, phase);
          run.held[0] = Own::open(ring + base * L::kSlotBytes, lane);
        }
        return more;
      };
      int before = -1;                                                         // the first slot of the group before
#pragma unroll 1
      for (int group = 1; group <= n_full; ++group) {
        const int now = base;
        const std::byte* const units = ring + now * L::kSlotBytes;
        const uint64_t b = wgmma_tile_at(__shfl_sync(0xffffffffu, inputs + now * (L::kInputBytes >> 4), 0));
        const auto unit = [&](int u) { return units + u / C * L::kSlotBytes + u % C * Unit::kBytes; };
        const auto open_next = [&](int u) {
          const int next = u + 1;
          if (next == kGroupUnits) return go_on(group < n_full || rest || !last);
          if (next % C == 0) await(arrived + now + next / C, phase);
          run.held[next % 2] = Own::open(unit(next), lane);
          return true;
        };
        if constexpr (kScaled) {
          run.template multiply<kGroupUnits>(
              lane, unit, [&](int u) { return b + u * (NT * 64); }, acc_of, open_next,
              [&](int u) {
                if (u % C + 1 == C) leave(now + u / C);
              });
        } else {
          // While a unit is multiplied, the operands of the next are decoded, and the one after that is on its way to registers.
#pragma unroll
          for (int u = 0; u < kGroupUnits; ++u) {
            const int done = u - 2;
            open_next(u);
            wgmma_await<1>();                                                  // `done` has been multiplied
            if (done >= 0 && done % C + 1 == C) leave(now + done / C);
            else if (done == -1 && before >= 0) leave(before + kGroup - 1);
            run.multiply(u, acc_of(u), b + u * (NT * 64));
          }
          before = now;
        }
      }
      wgmma_await<0>();
      if (before >= 0) leave(before + kGroup - 1);
      if (rest) {
#pragma unroll 1
        for (int step = 0; step < kGroup; ++step) {
          await(arrived + base + step, phase);
#pragma unroll
          for (int c = 0; c < C; ++c) {
            const int u = step * C + c;
            if (n_full * kGroupUnits + u >= n_units) continue;
            const std::byte* const unit = ring + (base + step) * L::kSlotBytes + c * Unit::kBytes;
            const uint64_t b = wgmma_tile_at(inputs) + base * (L::kInputBytes >> 4) + u * (NT * 64);
            run.held[0] = Own::open(unit, lane);
            if constexpr (kScaled) {
              run.start();
              run.template multiply<1>(
                  lane, [&](int) { return unit; }, [&](int) { return b; }, [&](int) -> float (&)[NT][4] { return acc[c]; }, [](int) { return false; }, [](int) {});
            } else {
              run.multiply(0, acc[c], b);
              wgmma_await<0>();
            }
          }
          leave(base + step);
        }
        if (go_on(!last))
          if constexpr (kScaled) run.start();
      }
#pragma unroll
      for (int c = 0; c < C; ++c) hold_all(acc[c]);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[n][i] += acc[c][n][i];
    }

    finish_place<kTiles, NT>(f, place, sums, sum, tile, lane, met, factors);
  }
#endif
}

template <class Unit, int W, int NT>
void launch(Several f, const Launch& l) {
  using L = Wide<Unit, W, NT>;
  const auto kernel = several_wide_kernel<Unit, W, NT>;
  static const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);      // where it is not, the launch fails
  (void)allowed;
  const int per_place = f.activate ? L::kTiles / 2 : L::kTiles;
  f.n_places = (f.n_tiles + per_place - 1) / per_place;
  launch_kernel(kernel, dim3(std::min(f.n_places, l.n_sms)), L::kThreads, L::kBytes, l.stream, f);
}

}  // namespace

template <class Unit>
void wide(const Several& f, int w, int n_groups, const Launch& l) {
  const auto by_groups = [&](auto w) { n_groups == 1 ? launch<Unit, w, 1>(f, l) : n_groups == 2 ? launch<Unit, w, 2>(f, l) : launch<Unit, w, 4>(f, l); };
  if constexpr (Unit::kScales == 0)
    if (w == 4) return by_groups(std::integral_constant<int, 4>{});
  by_groups(std::integral_constant<int, 3>{});
}
template void wide<Nvfp4Unit>(const Several&, int, int, const Launch&);
template void wide<Mxfp4Unit>(const Several&, int, int, const Launch&);
template void wide<Fp8Unit<false>>(const Several&, int, int, const Launch&);
template void wide<Fp8Unit<true>>(const Several&, int, int, const Launch&);
template void wide<Q8Unit>(const Several&, int, int, const Launch&);
template void wide<Q4Unit>(const Several&, int, int, const Launch&);
template void wide<Q41Unit>(const Several&, int, int, const Launch&);

}  // namespace ridge::cuda::several
