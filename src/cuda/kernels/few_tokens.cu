// Matmul for 1 to 8 tokens, where a token costs the weights it reads. One block a multiprocessor stays and walks over row tiles; teams of 8 warps take tiles in turn,
// warp w of a team the units u = w mod 8, and the sums of the warps are added in their order: the same arithmetic as for many tokens.
//
// Weights go through a ring of slots in shared memory, one ring a team, a slot being units that lie together, so that one bulk copy fills it: 75 to 115 KB a
// multiprocessor are on their way. Filling begins before the kernel waits for its predecessor; but the input, which everything waits for, queues behind what was asked
// for before it, so where a norm makes the input, the rest of the ring waits for it (Plan::kFirst; in bf16, where memory is all that counts, it does not). A block
// takes more than half of a multiprocessor's shared memory: no two of one kernel meet on a multiprocessor while another has none, and the next kernel's block comes when
// this one's leaves.
//
// What a layer pays for beyond its bytes is waiting where one kernel ends and the next begins: for parameters, which are in no cache, for the release, for the input, for code.
// A load takes two to four times as long while rings are being filled, so neither a ring that is asked for earlier, by kernels side by side on a multiprocessor or by one that
// stays for four matmuls, nor a deeper one gained anything (docs/benchmarks.md has the figures): all of them fill it when the next input is on its way. Half the instructions around the input, with
// twice the registers and one more slot, made a layer 2.5 us faster (of 46 in nvfp4), the head 6 %. All of a layer's matmuls are one kernel, which finds its code near: any one of them as another (more
// teams, longer slots, which are 6 % faster in a long run) made a layer 1.5 to 4 us slower.
//
// What was tried on the H200, nvfp4 head (151936 x 4096), share of the bandwidth: copies of a unit by the lanes of its warp (cp.async; 140 instructions a unit) 0.58;
// bulk copies asked for by the multiplying warps in turn 0.56, waiting for the slot before the multiplication instead of after it 0.54; one warp that asks for both
// teams 0.74; one for each 0.80; with short code and registers to spare, 0.92. Prefetching further units into the second-level cache made it slower.
//
// What surrounds a matmul is done on its way (Around): the norm of its input by each block for itself, which costs less than a kernel in between; the addition to the
// residual stream or the activation where the sums end. All of it in the order and rounding of the separate kernels.
#include <algorithm>

#include "cuda/kernels/few_tokens.h"

namespace ridge::cuda {
namespace {

using namespace few;

constexpr int kAloneBytes = 116 << 10;                                      // of shared memory: two blocks of this do not fit

// Lanes that are not `there` keep what v holds, and take no part in the access.
__device__ void load_where(uint4& v, uint32_t address, bool there) {
  asm volatile("{\n.reg .pred there;\nsetp.ne.u32 there, %5, 0;\n@there ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "r"(address), "r"(uint32_t(there)));
}

// A launch's parameters are in no cache when it starts, and a warp that needs a line of 64 bytes of them waits for it: warps ask for a line each, all at once.
__device__ void fetch_parameters(const Few& f, int warp) {
  if (warp * 64 < int(sizeof(Few)) && reinterpret_cast<const int*>(&f)[warp * 16] == 0x7fedcba9) __nanosleep(0);
}

// A quarter of a multiprocessor has 16,384 registers, for five of a block's 20 warps and two of attention's, which is to find room beside it: 72 each, as the compiler
// gives them to blocks of 800 threads.
template <class Unit>
constexpr int kBounds = Plan<Unit>::kTeams == 2 ? 800 : (kTeam + 2) * 32;

// Teams, and for each a warp that asks for its weights (one warp for both: a lane that waits keeps the other from asking) and one that finishes its tiles.
template <class Unit>
__global__ void __launch_bounds__(kBounds<Unit>, 1) few_tokens_kernel(const __grid_constant__ Few f) {
#if __CUDA_ARCH__ >= 900
  constexpr int kTeams = Plan<Unit>::kTeams, kSlots = Plan<Unit>::kSlots, kEach = Plan<Unit>::kEach, kSlotUnits = kEach * kTeam;
  using L = Layout<Unit>;
  extern __shared__ __align__(128) std::byte memory[];
  Barrier* const gates = reinterpret_cast<uint64_t*>(memory);               // [team][slot] arrived, then left
  constexpr int kLeft = kTeams * kSlots;
  Barrier* const input_there = gates + 2 * kLeft;
  const int n_teams = gridDim.x * kTeams;
  const int any_warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0);    // the compiler sees that a warp agrees on it
  start_dependents();
  fetch_parameters(f, any_warp);

  if (any_warp >= kTeams * (kTeam + 1)) {
    __syncthreads();
    const int team = any_warp - kTeams * (kTeam + 1);
    if (f.n_tokens <= 2) finish_tiles<Unit, 1>(memory, team, f);
    else finish_tiles<Unit, kFewTokens / 2>(memory, team, f);
    return;
  }
  if (any_warp >= kTeams * kTeam) {
    if (threadIdx.x == kTeams * kTeam * 32) {
      for (int i = 0; i < kLeft; ++i) init_barrier(gates + i, 1), init_barrier(gates + kLeft + i, kTeam);
      init_barrier(input_there, 1);
      publish_barriers();
    }
    __syncwarp();
    __syncthreads();
    if (threadIdx.x % 32 > 0) return;
    const int team = any_warp - kTeams * kTeam, me = team * gridDim.x + blockIdx.x;
    int slot = 0, n_first = f.norm && Plan<Unit>::kFirst < kSlots ? Plan<Unit>::kFirst : -1;
    uint32_t phase = 1;                                                      // the first time round a slot is free
    const uint64_t policy = read_once();
    for (int nth = 0;; ++nth) {
      const Place at(f, me, nth, n_teams);
      if (at.tile >= f.n_tiles) return;
      const Part& part = at.part(f);
      const std::byte* units = part.units + int64_t{at.tile - part.first_block} * f.n_units * Unit::kBytes;
#pragma unroll 1
      for (int first = 0; first < f.n_units; first += kSlotUnits, units += L::kSlotBytes) {
        if (n_first-- == 0) await(input_there, 0);
        await(gates + kLeft + team * kSlots + slot, phase);
        const int n_bytes = min(kSlotUnits, f.n_units - first) * Unit::kBytes;
        arrive_expecting(gates + team * kSlots + slot, n_bytes);
        copy_bulk(memory + L::kGates + team * L::kRing + slot * L::kSlotBytes, units, n_bytes, gates + team * kSlots + slot, policy);
        if (++slot == kSlots) slot = 0, phase ^= 1;
      }
    }
  }
  int lane;
  asm volatile("mov.u32 %0, %laneid;" : "=r"(lane));
  const int g = lane / 4, q = lane % 4;
  const int team = any_warp / kTeam, warp = any_warp % kTeam;
  const int me = team * gridDim.x + blockIdx.x;
  std::byte* const input = memory + L::kGates + kTeams * L::kRing;
  float* const all_sums = reinterpret_cast<float*>(memory + L::sums_at(f));
  __syncthreads();
  take_input<kTeams>(input, all_sums + kTeams * 2 * f.n_tokens * kTokenSums, input_there, f);
  asm volatile("bar.sync 4, %0;" ::"n"(kTeams * kTeam * 32) : "memory");     // of the teams

  // Tokens that are not there stay zeros.
  const bool there = g < f.n_tokens;
  const uint32_t my_x = shared_address(input) + (there ? g : 0) * f.shared_stride + 2 * (lane_input<Unit::kHalves>(q, 0) + kUnit * warp);
  constexpr int kSecond = 2 * (lane_input<Unit::kHalves>(0, 1) - lane_input<Unit::kHalves>(0, 0)), kStep = 2 * kUnit * kTeam;
  struct Loaded { typename Unit::Held held; uint4 x0, x1; };
  Loaded loaded[2];                                                           // units whose registers are their own, so that both are on their way at once
  loaded[0].x0 = loaded[0].x1 = loaded[1].x0 = loaded[1].x1 = {0, 0, 0, 0};
  static_assert(kEach <= 2);
  int turn = 0;
  // The ring, as the producer goes through it.
  Barrier* const arrived = gates + team * kSlots;
  const std::byte* const ring = memory + L::kGates + team * L::kRing + warp * Unit::kBytes;
  int slot = 0;
  uint32_t phase = 0;
  const auto take = [&](int slot, auto&& multiply_slot) {
    await(arrived + slot, phase);
    multiply_slot(ring + slot * L::kSlotBytes);
    __syncwarp();
    if (lane == 0) arrive(arrived + slot + kLeft);
  };
  const auto advance = [&] {
    if (++slot == kSlots) slot = 0, phase ^= 1;
  };
  const int n_whole = f.n_units / kSlotUnits, n_rest = f.n_units % kSlotUnits;
  // Where a tile is whole runs, the next unit is on its way to registers while one is multiplied, over the ends of slots, runs and tiles.
  constexpr int kRuns = Plan<Unit>::kRuns;
  constexpr bool kWholeRing = kRuns == kSlots * kEach;
  const bool runs = kRuns > 0 && n_rest == 0 && n_whole * kEach % std::max(kRuns, 1) == 0;
  const auto load_input = [&](Loaded& to, uint32_t x) {
    load_where(to.x0, x, there);
    load_where(to.x1, x + kSecond, there);
  };
  [[maybe_unused]] const auto load_unit = [&](Loaded& to, int nth, uint32_t x) {
    const int s = kWholeRing ? nth / kEach : slot;
    if (nth % kEach == 0) await(arrived + s, phase);
    to.held = Unit::template load<Staged>(ring + s * L::kSlotBytes + nth % kEach * kTeam * Unit::kBytes, lane);
    load_input(to, x + nth * kStep);
    if (nth % kEach < kEach - 1) return;
    __syncwarp();
    if (lane == 0) arrive(arrived + s + kLeft);
    if (!kWholeRing) advance();
  };
  if constexpr (kRuns > 0) {
    if (runs && me < f.n_tiles) load_unit(loaded[0], 0, my_x);
  }
  for (int nth = 0;; ++nth) {
    if (Place(f, me, nth, n_teams).tile >= f.n_tiles) break;
    float acc[1][4] = {{0, 0, 0, 0}};
    uint32_t x = my_x;
    const auto multiply = [&](const Loaded& now) {
      const uint32_t b[1][8] = {{now.x0.x, now.x0.y, now.x0.z, now.x0.w, now.x1.x, now.x1.y, now.x1.z, now.x1.w}};
      Unit::multiply(acc, now.held, b);
    };
    const auto multiply_whole = [&](int slot, uint32_t x) {
      take(slot, [&](const std::byte* units) {
#pragma unroll
        for (int each = 0; each < kEach; ++each) loaded[each].held = Unit::template load<Staged>(units + each * kTeam * Unit::kBytes, lane), load_input(loaded[each], x + each * kStep);
#pragma unroll
        for (int each = 0; each < kEach; ++each) multiply(loaded[each]);
      });
    };
    int n_left = n_whole;
    if constexpr (kRuns > 0) {
      if (runs) {
        const bool last_tile = Place(f, me, nth + 1, n_teams).tile >= f.n_tiles;
#pragma unroll 1
        for (n_left *= kEach; n_left > 0; n_left -= kRuns) {
#pragma unroll
          for (int i = 0; i < kRuns; ++i) {
            if (i + 1 < kRuns) load_unit(loaded[(i + 1) % 2], i + 1, x);
            else {
              if (kWholeRing) phase ^= 1;
              x = n_left == kRuns ? my_x : x + kRuns * kStep;
              if (!(last_tile && n_left == kRuns)) load_unit(loaded[0], 0, x);
            }
            multiply(loaded[i % 2]);
          }
        }
      }
    }
#pragma unroll 1
    for (; n_left > 0; --n_left, x += kEach * kStep) {
      multiply_whole(slot, x);
      advance();
    }
    if (n_rest > 0) {
      take(slot, [&](const std::byte* units) {
#pragma unroll 1
        for (int each = 0; each * kTeam + warp < n_rest; ++each) {
          loaded[0].held = Unit::template load<Staged>(units + each * kTeam * Unit::kBytes, lane), load_input(loaded[0], x + each * kStep);
          multiply(loaded[0]);
        }
      });
      advance();
    }

    float* const sums = all_sums + (team * 2 + turn) * f.n_tokens * kTokenSums + warp * 16 + g;
    if (nth >= 2) sync_threads_of(barrier_of(Sums::read, team, turn), kTeamAndOne);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (2 * q + i % 2 < f.n_tokens) sums[(2 * q + i % 2) * kTokenSums + (i >= 2 ? 8 : 0)] = acc[0][i];
    __syncwarp();
    arrive_among_threads(barrier_of(Sums::there, team, turn), kTeamAndOne);
    turn ^= 1;
  }
#endif
}

template <class Unit>
bool run(Few f, const Launch& l, bool only_ask) {
  // Rows of tokens start in different banks.
  f.shared_stride = f.n_units * kUnit * 2 + (Unit::kHalves ? 64 : 16);
  const int bytes = std::max(Layout<Unit>::bytes(f), kAloneBytes);
  if (bytes > l.max_shared_bytes) return false;
  if (only_ask) return true;
  f.n_tiles = 0;
  for (int i = 0; i < f.n_parts; ++i) {
    f.part[i].first_block = f.activate ? 0 : f.n_tiles;
    f.part[i].scale *= Unit::kFactor;
    const int n = (f.part[i].rows + kTileRows - 1) / kTileRows;
    f.n_tiles = f.activate ? n : f.n_tiles + n;
  }
  const auto kernel = few_tokens_kernel<Unit>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  launch_kernel(kernel, std::min(f.n_tiles, l.n_sms), Plan<Unit>::kTeams * (kTeam + 2) * 32, bytes, l.stream, f);
  return true;
}

bool run(const Matmul& op, const Around& around, const Launch& l, bool only_ask) {
  if (op.x.rows < 1 || op.x.rows > kFewTokens || l.compute_capability < 90 || op.x.cols % 4 > 0 || op.x.stride % 16 > 0) return false;
  Few f{};
  const Weight* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    const Weight* w = op.w[i];
    if (!w) continue;
    if (!first) first = w;
    if (w->arithmetic.x == FormatId::f32 || !same_unit(*w, *first)) return false;
    f.part[f.n_parts++] = part_from(op, i);
  }
  if (!first) return false;
  f.n_tokens = int(op.x.rows);
  f.cols = int(op.x.cols);
  f.n_units = (f.cols + kUnit - 1) / kUnit;
  f.x = op.x.data;
  f.x_stride = op.x.stride;
  if (around.norm) {
    f.norm = true;
    f.x = around.norm->x.data;
    f.x_stride = around.norm->x.stride;
    f.norm_weight = around.norm->weight.data ? around.norm->weight.f32() : nullptr;
    f.eps = around.norm->eps;
    f.weight_offset = around.norm->weight_offset;
    f.normed = op.x.f32();
    f.normed_stride = op.x.stride / 4;
  } else if (around.x_bf16) {
    f.x_bf16 = true;
    f.x = around.x_bf16;
    f.x_stride = f.n_units * kUnit * 2;
  }
  if (around.activate) {
    f.activate = true;
    f.act = around.activate->kind;
    f.part[0].out = around.activate->out.f32();
    f.part[0].out_stride = around.activate->out.stride / 4;
    f.bf16_out = reinterpret_cast<__nv_bfloat16*>(around.bf16_out);
    f.bf16_stride = (f.part[0].rows + kUnit - 1) / kUnit * kUnit;
  }
  if (around.residual) {
    f.residual = around.residual->x.f32();
    f.residual_stride = around.residual->x.stride / 4;
    f.residual_scale = around.residual->pending_scale;
  }
  return with_unit(*first, [&](auto unit) { return run<decltype(unit)>(f, l, only_ask); });
}

}  // namespace

bool takes_few_tokens(const Matmul& op, const Launch& l) { return run(op, {}, l, true); }

void matmul_few_tokens(const Matmul& op, const Around& around, const Launch& l) { run(op, around, l, false); }

}  // namespace ridge::cuda
