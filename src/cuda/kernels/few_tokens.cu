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

#include "cuda/kernels/kernels.h"
#include "cuda/lib/activation.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/row_norm.h"
#include "cuda/lib/units.h"

namespace ridge::cuda {
namespace {

constexpr int kTeam = 8;                                                    // warps
constexpr int kAloneBytes = 116 << 10;                                      // of shared memory: two blocks of this do not fit
static_assert(kTeam * 32 == kNormThreads && kFewTokens == 8);

struct Part {                                                               // one weight of the op
  const std::byte* units;
  float* out;
  const float* bias;
  const float* row_scales;                                                  // null: none
  int64_t out_stride;                                                       // in floats
  int rows, first_tile;
  float scale;
};

struct Few {
  Part part[3];
  int n_parts, n_tiles, n_units, n_tokens, cols;
  const std::byte* x;
  int64_t x_stride;                                                         // bytes
  bool x_bf16;                                                              // rows padded with zeros to whole units
  const float* norm_weight;                                                 // the input is norm(x) * (weight + offset), also written to `normed`; null: as it is
  float* normed;
  int64_t normed_stride;
  float eps, weight_offset;
  bool norm, activate;                                                      // activate: part 0 is the gate, part 1 what it gates
  ActKind act;
  float* residual;                                                          // += residual_scale * out[0]; null: none
  int64_t residual_stride;
  float residual_scale;
  __nv_bfloat16* bf16_out;                                                  // the activated rows again, for the next matmul; null: none
  int64_t bf16_stride;
  int shared_stride;                                                        // of the input's rows in shared memory
};

// Teams of a block, slots of a team's ring, units of a slot that a warp takes, slots that are asked for before the input of a norm is there (which would queue behind
// them). kRuns: units that are multiplied in one piece, the next one on its way to registers meanwhile; with a whole round of the ring every address is a constant away from a few that
// stay. Formats that need many instructions a byte have two teams.
template <class Unit> struct Plan { static constexpr int kTeams = 2, kSlots = 4, kEach = 2, kFirst = 2, kRuns = 0; };
template <> struct Plan<Nvfp4Unit> { static constexpr int kTeams = 2, kSlots = 4, kEach = 2, kFirst = 2, kRuns = 8; };
template <> struct Plan<Mxfp4Unit> { static constexpr int kTeams = 2, kSlots = 4, kEach = 2, kFirst = 2, kRuns = 8; };
template <> struct Plan<Bf16Unit> { static constexpr int kTeams = 1, kSlots = 7, kEach = 1, kFirst = 7, kRuns = 0; };
template <> struct Plan<Q8Unit> { static constexpr int kTeams = 2, kSlots = 5, kEach = 1, kFirst = 2, kRuns = 0; };
template <bool kBlocks> struct Plan<Fp8Unit<kBlocks>> { static constexpr int kTeams = 2, kSlots = 5, kEach = 1, kFirst = 2, kRuns = 2; };

// Shared memory: gates [team][slot] arrived, then left, then the input | rings [team][slot] units | input [token][shared_stride] bf16 | sums [team][2][warp][token][16] f32 | 8 floats a team.
template <class Unit>
struct Layout {
  using P = Plan<Unit>;
  static constexpr int kGates = 256, kSlotBytes = P::kEach * kTeam * Unit::kBytes, kRing = P::kSlots * kSlotBytes;
  static_assert(P::kTeams * P::kSlots * 16 + 8 <= kGates && P::kRuns % 2 == 0);
  __host__ __device__ static int sums_at(const Few& f) { return kGates + P::kTeams * kRing + f.n_tokens * f.shared_stride; }
  static int bytes(const Few& f) { return sums_at(f) + P::kTeams * (2 * kTeam * f.n_tokens * 16 + kTeam) * 4; }
};

__device__ void put_four(std::byte* row, int k, const float4& v) { *reinterpret_cast<uint2*>(row + 2 * k) = {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)}; }

// Whole fours of a row (cols is a multiple of four); zeros beyond it.
__device__ float4 four_within(const float* row, int k, int cols) {
  float4 v{0, 0, 0, 0};
  if (k < cols) v = __ldcg(reinterpret_cast<const float4*>(row + k));
  return v;
}

// Lanes that are not `there` keep what v holds, and take no part in the access.
__device__ void load_where(uint4& v, uint32_t address, bool there) {
  asm volatile("{\n.reg .pred there;\nsetp.ne.u32 there, %5, 0;\n@there ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "r"(address), "r"(uint32_t(there)));
}

// Addresses, or numbers that are on their way, are not used before this.
template <class T>
__device__ void settle(const T*& p, int& n) { asm volatile("" : "+l"(p), "+r"(n)::"memory"); }
__device__ void settle(float4& v) { asm volatile("" : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w)::"memory"); }

// The input's rows as bf16 in shared memory. Short code on purpose: it runs once a kernel, from instructions that are not in the multiprocessor's cache by then. What is waited
// for is asked for first thing after the wait, by addresses that were there before; the norm's weights, which may still be on their way, are touched after that.
// `there` is passed when what was asked for has come.
template <int kTeams>
__device__ void take_input(std::byte* to, float* reduce, Barrier* there, const Few& f) {
  const int team = threadIdx.x / kNormThreads, thread = threadIdx.x % kNormThreads, padded = f.n_units * kUnit;
  if (f.norm) {
    constexpr int kHeld = 4, kApart = 4 * kNormThreads;                     // chunks a thread keeps, more are read again; numbers from one to the next
    const int first = 4 * thread;
    float4 weight[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) weight[i] = f.norm_weight ? four_within(f.norm_weight, first + i * kApart, f.cols) : float4{1, 1, 1, 1};
    const float offset = f.norm_weight ? f.weight_offset : 0.0f;
    const float* from = reinterpret_cast<const float*>(f.x + team * f.x_stride) + first;
    int n_ahead = team < f.n_tokens ? f.cols - first : 0;
    settle(from, n_ahead);
    await_predecessors();
    float4 v[kHeld];
    const auto load = [&] {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) v[i] = four_within(from, i * kApart, n_ahead);
    };
    load();
    for (int token = team; token < f.n_tokens; token += kTeams) {
      std::byte* const row = to + token * f.shared_stride;
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kHeld; ++i) settle(weight[i]);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) squares = add_squares(squares, v[i]);
      if (threadIdx.x == 0 && token == 0) arrive_with(there, squares);
#pragma unroll 1
      for (int k = kHeld * kApart; k < n_ahead; k += kApart) squares = add_squares(squares, __ldcg(reinterpret_cast<const float4*>(from + k)));
      const float factor = rms_factor(group_sum(squares, reduce + team * kTeam, team), f.cols, f.eps);
      const auto finish = [&](float4 y, const float4& w, int k) {
        if (k >= padded) return;
        y = {y.x * factor * (w.x + offset), y.y * factor * (w.y + offset), y.z * factor * (w.z + offset), y.w * factor * (w.w + offset)};
        put_four(row, k, y);
        if (blockIdx.x == 0 && k < f.cols) *reinterpret_cast<float4*>(f.normed + token * f.normed_stride + k) = y;
      };
#pragma unroll
      for (int i = 0; i < kHeld; ++i) finish(v[i], weight[i], first + i * kApart);
#pragma unroll 1
      for (int k = first + kHeld * kApart; k < padded; k += kApart)
        finish(four_within(from, k - first, n_ahead), f.norm_weight ? four_within(f.norm_weight, k, f.cols) : float4{1, 1, 1, 1}, k);
      from += kTeams * (f.x_stride / 4);
      if (token + kTeams < f.n_tokens) load();
    }
    return;
  }
  // All loads of a thread before the first is used: one after the other they cost a trip to the second-level cache each.
  constexpr int kThreads = kTeams * kNormThreads;
  const auto copy = [&](auto held, auto&& put) {                            // held: so many pieces of 16 bytes at once
    using Held = decltype(held);
    using Piece = std::remove_all_extents_t<typename Held::type>;
    constexpr int kAtOnce = std::extent_v<typename Held::type>, kNumbers = std::is_same_v<Piece, uint4> ? 8 : 4, kApart = kNumbers * kThreads;
    const int first = kNumbers * int(threadIdx.x);
    int n_ahead = (kNumbers == 8 ? padded : f.cols) - first;
    const std::byte* from = f.x + 16 * int64_t{threadIdx.x};
    settle(from, n_ahead);
    await_predecessors();
    Piece v[kAtOnce];
    const auto load = [&](int k) {
      const Piece* const p = reinterpret_cast<const Piece*>(from) + k / kNumbers;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        v[i] = {};
        if (k + i * kApart < n_ahead) v[i] = __ldcg(p + i * kThreads);
      }
    };
    load(0);
    for (int token = 0; token < f.n_tokens; ++token, from += f.x_stride) {
      std::byte* const row = to + token * f.shared_stride;
#pragma unroll 1
      for (int k = 0; first + k < padded; k += kAtOnce * kApart) {
        if (token + k > 0) load(k);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          if (first + k + i * kApart < padded) put(row, first + k + i * kApart, v[i]);
      }
    }
  };
  if (f.x_bf16) copy(std::type_identity<uint4[6 / kTeams]>{}, [](std::byte* row, int k, const uint4& v) { *reinterpret_cast<uint4*>(row + 2 * k) = v; });
  else copy(std::type_identity<float4[4 / kTeams]>{}, [](std::byte* row, int k, const float4& v) { put_four(row, k, v); });
}

// A launch's parameters are in no cache when it starts, and a warp that needs a line of 64 bytes of them waits for it: warps ask for a line each, all at once.
__device__ void fetch_parameters(const Few& f, int warp) {
  if (warp * 64 < int(sizeof(Few)) && reinterpret_cast<const int*>(&f)[warp * 16] == 0x7fedcba9) __nanosleep(0);
}

// A quarter of a multiprocessor has 16,384 registers, for five of a block's 18 warps at most and two of attention's, which is to find room beside it: 72 each, as the compiler
// gives them to blocks of 800 threads.
template <class Unit>
constexpr int kBounds = Plan<Unit>::kTeams == 2 ? 800 : (kTeam + 1) * 32;

// Teams, and for each a warp that asks for its weights (one warp for both: a lane that waits keeps the other from asking).
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

  // What team `me` of all goes through: tiles me, me + n_teams, ... of the parts in a row; with an activation each tile of part 0 and then the same of part 1.
  struct Place {
    int tile, which;
    __device__ const Part& part(const Few& f) const {
      int i = which;
      if (!f.activate)
        while (i + 1 < f.n_parts && tile >= f.part[i + 1].first_tile) ++i;
      return f.part[i];
    }
  };
  const auto place = [&](int me, int nth) { return f.activate ? Place{me + nth / 2 * n_teams, nth % 2} : Place{me + nth * n_teams, 0}; };

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
      const Place at = place(me, nth);
      if (at.tile >= f.n_tiles) return;
      const Part& part = at.part(f);
      const std::byte* units = part.units + int64_t{at.tile - part.first_tile} * f.n_units * Unit::kBytes;
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
  take_input<kTeams>(input, all_sums + kTeams * 2 * kTeam * f.n_tokens * 16, input_there, f);
  asm volatile("bar.sync 4, %0;" ::"n"(kTeams * kTeam * 32) : "memory");     // of the teams

  // Tokens that are not there stay zeros.
  const bool there = g < f.n_tokens;
  const uint32_t my_x = shared_address(input) + (there ? g : 0) * f.shared_stride + 2 * (lane_input<Unit::kHalves>(q, 0) + kUnit * warp);
  constexpr int kSecond = 2 * (lane_input<Unit::kHalves>(0, 1) - lane_input<Unit::kHalves>(0, 0)), kStep = 2 * kUnit * kTeam;
  struct Loaded { typename Unit::Held held; uint4 x0, x1; };
  Loaded loaded[2];                                                           // units whose registers are their own, so that both are on their way at once
  loaded[0].x0 = loaded[0].x1 = loaded[1].x0 = loaded[1].x1 = {0, 0, 0, 0};
  static_assert(kEach <= 2);
  // Who writes which sum of a tile: most warps none.
  const int row_of_tile = lane % 16, token = 2 * warp + lane / 16;
  float gate_sum = 0;
  int parity = 0;
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
    const Place at = place(me, nth);
    if (at.tile >= f.n_tiles) break;
    float bias = 0, row_scale = 1, before = 0;
    const Part& part = at.part(f);
    const int row = (at.tile - part.first_tile) * kTileRows + row_of_tile;
    const bool writes = token < f.n_tokens && row < part.rows;
    if (writes) {                                                            // asked for now, needed when the tile is done
      if (part.bias) bias = part.bias[row];
      if (part.row_scales) row_scale = part.row_scales[row];
      if (f.residual) before = __ldcg(f.residual + token * f.residual_stride + row);
    }

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
        const bool last_tile = place(me, nth + 1).tile >= f.n_tiles;
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

    // [warp][token][row]; one barrier a tile: the other half of the sums is free by then.
    float* const sums = all_sums + (team * 2 + parity) * kTeam * f.n_tokens * 16;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (2 * q + i % 2 < f.n_tokens) sums[(warp * f.n_tokens + 2 * q + i % 2) * 16 + g + (i >= 2 ? 8 : 0)] = acc[0][i];
    sync_group(team);
    parity ^= 1;
    if (!writes) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kTeam; ++w) sum += sums[(w * f.n_tokens + token) * 16 + row_of_tile];
    sum = __fmul_rn(__fmul_rn(sum, part.scale), row_scale);                  // never fused with the addition: every kernel of this arithmetic rounds here
    if (part.bias) sum = __fadd_rn(sum, bias);
    if (f.activate && at.which == 0) gate_sum = sum;
    else if (f.activate) {
      const float value = __fmul_rn(act(f.act, gate_sum), sum);
      f.part[0].out[token * f.part[0].out_stride + row] = value;
      if (f.bf16_out) f.bf16_out[token * f.bf16_stride + row] = __float2bfloat16_rn(value);
    } else {
      part.out[token * part.out_stride + row] = sum;
      if (f.residual) f.residual[token * f.residual_stride + row] = fmaf(f.residual_scale, sum, before);
    }
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
    f.part[i].first_tile = f.activate ? 0 : f.n_tiles;
    f.part[i].scale *= Unit::kFactor;
    const int n = (f.part[i].rows + kTileRows - 1) / kTileRows;
    f.n_tiles = f.activate ? n : f.n_tiles + n;
  }
  const auto kernel = few_tokens_kernel<Unit>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  launch_kernel(kernel, std::min(f.n_tiles, l.n_sms), Plan<Unit>::kTeams * (kTeam + 1) * 32, bytes, l.stream, f);
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
    f.part[f.n_parts++] = {w->packed.data, op.out[i].f32(), op.bias[i].data ? op.bias[i].f32() : nullptr, w->row_scales.data ? w->row_scales.f32() : nullptr, op.out[i].stride / 4, int(w->rows), 0, w->scale};
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
