// What the matmul of few tokens (few_tokens.cu) is made of: its parameters, what its shared memory holds, its input and its tiles' ends. A block has teams of 8 warps that multiply, and
// for each a warp that asks for its weights and one that finishes its tiles.
#pragma once
#include <algorithm>
#include <type_traits>

#include "cuda/kernels/few_barriers.h"
#include "cuda/kernels/gemm.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/activation.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/relay.h"
#include "cuda/lib/row_norm.h"
#include "cuda/lib/shared_loads.h"
#include "cuda/lib/units.h"

namespace ridge::cuda::few {

static_assert(kTeam * 32 == kNormThreads && kFewTokens == 8);

using Part = GemmPart;                                                      // first_block: the first of its tiles

struct Few {
  Part part[3];
  int n_parts, n_tiles, n_units, n_tokens, cols;
  const std::byte* x;
  int64_t x_stride;                                                         // bytes
  bool x_bf16;                                                              // rows padded with zeros to whole units
  const float* norm_weight;                                                 // of a norm before: the input is x * (weight + offset), and the sums are multiplied with the norm's factor; null: ones
  float eps, weight_offset;
  bool norm, activate;                                                      // activate: part 0 is the gate, part 1 what it gates
  ActKind act;
  float* residual;                                                          // += residual_scale * out[0]; null: none
  int64_t residual_stride;
  float* relay;                                                             // the residual stream again, for the next phase; null: none
  float residual_scale;
  __nv_bfloat16* bf16_out;                                                  // the activated rows again, for the next matmul; null: none
  int64_t bf16_stride;
  int input_at, shared_stride;                                              // in shared memory: the input, and its rows
  bool in_parts;                                                            // of kPiece numbers, of which two are there at a time
};

// Matmuls one after the other, more than one for a single token, each over what the one before has made, which comes in a relay. `cleared`: the relays of the kernel before, for the one that follows.
template <int kMost>
struct Phases { RelayWords cleared; int n_phases, sums_at; Few phase[kMost]; };

// Teams of a block, slots of a team's ring, units of a slot that a warp takes, slots that are asked for before the input of a norm is there (which would queue behind
// them). kRuns: units that are multiplied in one piece, the next one on its way to registers meanwhile; with a whole round of the ring every address is a constant away from a few that
// stay. Formats that need many instructions a byte have two teams.
template <class Unit> struct Plan { static constexpr int kTeams = 2, kSlots = 4, kEach = 2, kFirst = 2, kRuns = 0; };
template <> struct Plan<Nvfp4Unit> { static constexpr int kTeams = 2, kSlots = 4, kEach = 2, kFirst = 3, kRuns = 8; };
template <> struct Plan<Mxfp4Unit> { static constexpr int kTeams = 2, kSlots = 4, kEach = 2, kFirst = 3, kRuns = 8; };
template <> struct Plan<Bf16Unit> { static constexpr int kTeams = 1, kSlots = 7, kEach = 1, kFirst = 7, kRuns = 0; };
template <> struct Plan<Q8Unit> { static constexpr int kTeams = 2, kSlots = 5, kEach = 1, kFirst = 2, kRuns = 0; };
template <bool kBlocks> struct Plan<Fp8Unit<kBlocks>> { static constexpr int kTeams = 2, kSlots = 5, kEach = 1, kFirst = 4, kRuns = 2; };

// A token's sums of a tile: [warp][16], and as much again as makes the next token's begin in other banks.
constexpr int kTokenSums = kTeam * 16 + 16;

// Shared memory: gates [team][slot] arrived, then left, then the input, then squares [phase] | rings [team][slot] units | input [token][shared_stride] bf16, of even and of odd phases | sums [team][2][token][kTokenSums] f32 |
// squares of a norm's input, [token][warp of a team], or of all teams for a kernel of one token.
template <class Unit>
struct Layout {
  using P = Plan<Unit>;
  static constexpr int kGates = kBarriersAt + kBarrierBytes, kSlotBytes = P::kEach * kTeam * Unit::kBytes, kRing = P::kSlots * kSlotBytes;
  static_assert(P::kTeams * P::kSlots * 16 + 8 + 8 * kMostPhases <= kBarriersAt && P::kRuns % 2 == 0);
  static constexpr int kInputs = kGates + P::kTeams * kRing;
  static constexpr int sums_bytes(int n_tokens) { return squares_at(n_tokens) + std::max(n_tokens, P::kTeams) * kTeam * 4; }
  static constexpr int squares_at(int n_tokens) { return P::kTeams * 2 * n_tokens * kTokenSums * 4; }      // behind the sums
};

__device__ inline void put_four(std::byte* row, int k, const float4& v) { *reinterpret_cast<uint2*>(row + 2 * k) = {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)}; }

// Whole fours of a row (cols is a multiple of four); zeros beyond it.
__device__ inline float4 four_within(const float* row, int k, int cols) {
  float4 v{0, 0, 0, 0};
  if (k < cols) v = __ldcg(reinterpret_cast<const float4*>(row + k));
  return v;
}

#if defined(RIDGE_SM90)
// The input's rows as bf16 in shared memory. Short code on purpose: it runs once a kernel, from instructions that are not in the multiprocessor's cache by then. What is waited
// for is asked for first thing after the wait, by addresses that were there before; the norm's weights, which may still be on their way, are touched after that.
// `there` is passed when what was asked for has come. `polls`: what a norm is to make it of comes in a relay. kSeveral: what the next tokens are made of is asked for before the ones before
// are used, since one after the other they cost a trip to the second-level cache each. `squared` is passed when all squares are there. Warps meet when their numbers have come and go on together: each on
// its own, as numbers come, they wait for the same code one after the other, and a layer took 33.9 us instead of 31.3 (nvfp4; with `there` before they meet 31.8). kOneToken: all teams have a part of its norm (30.8).
template <int kTeams, bool kSeveral, bool kOneToken>
__device__ void take_input(std::byte* to, float* squares_of_warps, Barrier* there, Barrier* squared, const Few& f, int n_tokens, bool polls) {
  constexpr int kGroups = kOneToken ? 1 : kTeams, kGroupThreads = kTeams / kGroups * kNormThreads;      // threads that have a token's norm
  const int group = threadIdx.x / kGroupThreads, thread = threadIdx.x % kGroupThreads;
  int padded = f.n_units * kUnit, stride = f.shared_stride;
  keep(padded, stride);
  if (f.norm) {
    constexpr int kHeld = 1024 / kGroupThreads, kApart = 4 * kGroupThreads;  // chunks a thread keeps, more are read again; numbers from one to the next
    const int first = 4 * thread;
    float4 weight[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) weight[i] = f.norm_weight ? four_within(f.norm_weight, first + i * kApart, f.cols) : float4{1, 1, 1, 1};
    const float offset = f.norm_weight ? f.weight_offset : 0.0f;
    int cols = f.cols;
    keep(cols);
    const float* from = reinterpret_cast<const float*>(f.x + group * f.x_stride) + first;
    int n_ahead = group < n_tokens ? cols - first : 0;
    settle(from, n_ahead);
    if (!polls) await_predecessors();
    float4 v[kHeld];
    const auto load = [&](float4 (&v)[kHeld], const float* from) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) v[i] = i * kApart < n_ahead ? not_made<float4>() : float4{0, 0, 0, 0};
      load_made(v, reinterpret_cast<const float4*>(from), kGroupThreads, polls);
    };
    load(v, from);
    for (int token = group; token < n_tokens; token += kGroups) {
      [[maybe_unused]] float4 next[kHeld];
      if (kSeveral && token + kGroups < n_tokens) load(next, from + kGroups * (f.x_stride / 4));
      std::byte* const row = to + token * stride;
      const auto put = [&](const float4& v, const float4& w, int k) {
        if (k < padded) put_four(row, k, {v.x * (w.x + offset), v.y * (w.y + offset), v.z * (w.z + offset), v.w * (w.w + offset)});
      };
      if constexpr (kOneToken) meet<kTeams>();
      else sync_group(group);
      if (threadIdx.x == 0 && token == 0) arrive_with(there, v[0].x + v[kHeld - 1].x);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) settle(weight[i]);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) put(v[i], weight[i], first + i * kApart);
      float squares[2] = {};                                                // of even chunks and odd ones of kNormThreads
#pragma unroll
      for (int i = 0; i < kHeld; ++i) squares[kOneToken ? 0 : i % 2] += tile_squares(v[i]);
#pragma unroll 1
      for (int k = kHeld * kApart; k < padded; k += kApart) {
        const float4 more = four_within(from, k, n_ahead);
        put(more, f.norm_weight ? four_within(f.norm_weight, first + k, cols) : float4{1, 1, 1, 1}, first + k);
        (kOneToken || k / kApart % 2 == 0 ? squares[0] : squares[1]) += tile_squares(more);
      }
      const float of_warp = kOneToken ? warp_sum_of_quads(squares[0]) : warp_squares(squares);
      if (thread % 32 == 0) squares_of_warps[token * kTeam + thread / 32] = of_warp;
      from += kGroups * (f.x_stride / 4);
      if constexpr (kSeveral) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) v[i] = next[i];
      } else {
        if (token + kGroups < n_tokens) load(v, from);
      }
    }
    arrive_as_warp(squared, thread % 32);
    return;
  }
  constexpr int kThreads = kTeams * kNormThreads;
  if constexpr (kSeveral) {
    await_predecessors();
    if (f.x_bf16) {
#pragma unroll 1
      for (int token = 0; token < n_tokens; ++token)
#pragma unroll 1
        for (int k = 8 * int(threadIdx.x); k < padded; k += 8 * kThreads) copy_chunk(to + token * stride + 2 * k, f.x + token * f.x_stride + 2 * k);
      commit_chunks();
      await_chunks<0>();
      return;
    }
    constexpr int kAtOnce = 4, kEach = 4 / kTeams;                          // tokens, and fours of each
#pragma unroll 1
    for (int token = 0; token < n_tokens; token += kAtOnce)
#pragma unroll 1
      for (int k = 4 * int(threadIdx.x); k < padded; k += kEach * 4 * kThreads) {
        float4 v[kAtOnce][kEach];
#pragma unroll
        for (int t = 0; t < kAtOnce; ++t)
#pragma unroll
          for (int i = 0; i < kEach; ++i) v[t][i] = four_within(reinterpret_cast<const float*>(f.x + (token + t) * f.x_stride), k + i * 4 * kThreads, token + t < n_tokens ? f.cols : 0);
#pragma unroll
        for (int t = 0; t < kAtOnce; ++t)
#pragma unroll
          for (int i = 0; i < kEach; ++i)
            if (token + t < n_tokens && k + i * 4 * kThreads < padded) put_four(to + (token + t) * stride, k + i * 4 * kThreads, v[t][i]);
      }
    return;
  }
  // All loads of a thread before the first is used: one after the other they cost a trip to the second-level cache each.
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
    for (int token = 0; token < n_tokens; ++token, from += f.x_stride) {
      std::byte* const row = to + token * stride;
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
#endif

// The input of a phase that is activated by the one before, in pieces of 16 bytes a thread of two teams: the next one is on its way while one is multiplied, and is looked at when it
// is needed. So the phase begins while others still make the end of its input. kRests: the last piece may be less, for some of the warps.
constexpr int kPiece = 4096;
template <class Unit>
constexpr bool kPieceIsRuns = kPiece % (kUnit * kTeam * Plan<Unit>::kRuns) == 0 && (Plan<Unit>::kRuns < Plan<Unit>::kSlots * Plan<Unit>::kEach || kPiece == kUnit * kTeam * Plan<Unit>::kRuns);
static_assert(kPieceIsRuns<Nvfp4Unit> && kPieceIsRuns<Mxfp4Unit> && kPieceIsRuns<Fp8Unit<false>> && kPieceIsRuns<Fp8Unit<true>>);
// Where a run is a round of the ring, every run begins where the ring does. A tile that ends elsewhere leaves the rest of a round empty: slots that are passed on with nothing in them.
template <class Unit>
constexpr bool kRunIsRound = Plan<Unit>::kRuns > 0 && Plan<Unit>::kRuns == Plan<Unit>::kSlots * Plan<Unit>::kEach;
// Inputs of a phase: whole pieces, or so many that a rest is little of them.
template <class Unit>
bool fit_a_phase(int64_t cols) {
  constexpr int kLeast = 3, kWhole = kUnit * kTeam * std::max(kRunIsRound<Unit> ? Plan<Unit>::kEach : Plan<Unit>::kRuns, 1);     // of a slot, or of a run
  return cols % kPiece == 0 || (cols > kLeast * kPiece && cols % kWhole == 0);
}
template <bool kRests>
struct Pieces {
  std::byte* to;
  const std::byte* from;
  int n_mine;                                                                // pieces that the warp has a part of
  __device__ Pieces(std::byte* memory, const Few& f) : to(memory + f.input_at + 16 * threadIdx.x), from(f.x + 16 * threadIdx.x), n_mine(kRests ? (f.cols - int(threadIdx.x / 32 * 256) + kPiece - 1) / kPiece : 0) {}
  __device__ bool has(int nth) const { return !kRests || nth < n_mine; }
  __device__ void ask(int nth) const {
    if (!has(nth)) return;
    copy_chunk(to + nth * 2 * kPiece, from + nth * 2 * kPiece);
    commit_chunks();
  }
  // By all threads of the teams: piece nth, which has been asked for, is there. Then the next one is asked for.
  __device__ void pass(int nth, int n) const {
    await_chunks<0>();
    if (has(nth)) {
      uint4* const mine = reinterpret_cast<uint4*>(to + nth * 2 * kPiece);
      uint4 v = *mine;
      if (__any_sync(0xffffffffu, unmade(v))) {                             // lanes stay together: a loop without branches follows
        do v = load_relayed(reinterpret_cast<const uint4*>(from + nth * 2 * kPiece));
        while (__any_sync(0xffffffffu, unmade(v)));
        *mine = v;
      }
    }
    meet<2>();
    if (nth + 1 < n) ask(nth + 1);
  }
};

// The input of several tokens in parts of kPiece numbers, by threads of two teams, where shared memory has no room for all of it: two are there, or on their way, at a time.
struct Parts {
  const Few& f;
  std::byte* to;
  __device__ int bytes() const { return f.n_tokens * f.shared_stride; }
  __device__ void ask(int nth) const {
    std::byte* row = to + nth % 2 * bytes() + 16 * threadIdx.x;
    const std::byte* from = f.x + (f.x_bf16 ? 2 : 4) * (nth * kPiece + 8 * int(threadIdx.x));
#pragma unroll 1
    for (int token = 0; token < f.n_tokens; ++token, row += f.shared_stride, from += f.x_stride) {
      if (f.x_bf16) {
        copy_chunk(row, from);
      } else {
        const float4 a = __ldcg(reinterpret_cast<const float4*>(from)), b = __ldcg(reinterpret_cast<const float4*>(from) + 1);
        *reinterpret_cast<uint4*>(row) = {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)};
      }
    }
    commit_chunks();
  }
  // Part nth of n is there; the one before it has been read by all, and the next one is on its way.
  __device__ void pass(int nth, int n) const {
    if (nth > 0) meet<2>();
    if (nth == 0) ask(0);
    if (nth + 1 < n) ask(nth + 1);
    else commit_chunks();
    await_chunks<1>();
    meet<2>();
  }
};

// What team `me` of all goes through: tiles me, me + n_teams, ... of the parts in a row; with an activation each tile of part 0 and then the same of part 1.
struct Place {
  int tile, which;
  __device__ Place(const Few& f, int me, int nth, int n_teams) : tile(me + (f.activate ? nth / 2 : nth) * n_teams), which(f.activate ? nth % 2 : 0) {}
  __device__ const Part& part(const Few& f) const {
    int i = which;
    if (!f.activate)
      while (i + 1 < f.n_parts && tile >= f.part[i + 1].first_block) ++i;
    return f.part[i];
  }
};

// Tiles of team `me` in a phase.
__device__ inline int n_tiles_of(const Few& f, int me, int n_teams) { return me < f.n_tiles ? ((f.n_tiles - me - 1) / n_teams + 1) * (f.activate ? 2 : 1) : 0; }

#if defined(RIDGE_SM90)
// By one thread for each team: slot after slot, phase after phase, as they become free.
template <class Unit, bool kRests, int kMost>
__device__ void ask_for_weights(std::byte* memory, int team, const Phases<kMost>& c) {
  using L = Layout<Unit>;
  constexpr int kTeams = Plan<Unit>::kTeams, kSlots = Plan<Unit>::kSlots, kSlotUnits = Plan<Unit>::kEach * kTeam, kLeft = kTeams * kSlots;
  const int n_phases = kMost > 1 ? c.n_phases : 1, n_teams = gridDim.x * kTeams, me = team * gridDim.x + blockIdx.x;
  Barrier* const arrived = reinterpret_cast<Barrier*>(memory) + team * kSlots;
  Barrier* const input_there = reinterpret_cast<Barrier*>(memory) + 2 * kLeft;
  std::byte* const ring = memory + L::kGates + team * L::kRing;
  int slot = 0;
  uint32_t phase = 1, input = 0;                                             // the first time round a slot is free; parity of the inputs that were there
  const uint64_t policy = read_once();
#pragma unroll 1
  for (int p = 0; p < n_phases; ++p) {
    const Few& f = c.phase[p];
    int n_first = f.norm && Plan<Unit>::kFirst < kSlots ? Plan<Unit>::kFirst : -1;
    for (int nth = 0;; ++nth) {
      const Place at(f, me, nth, n_teams);
      if (at.tile >= f.n_tiles) break;
      const Part& part = at.part(f);
      const std::byte* units = part.units + int64_t{at.tile - part.first_block} * f.n_units * Unit::kBytes;
#pragma unroll 1
      for (int first = 0; first < f.n_units; first += kSlotUnits, units += L::kSlotBytes) {
        if (n_first-- == 0) await(input_there, input);
        await(arrived + kLeft + slot, phase);
        const int n_bytes = min(kSlotUnits, f.n_units - first) * Unit::kBytes;
        arrive_expecting(arrived + slot, n_bytes);
        copy_bulk(ring + slot * L::kSlotBytes, units, n_bytes, arrived + slot, policy);
        if (++slot == kSlots) slot = 0, phase ^= 1;
      }
      if constexpr (kRests && kRunIsRound<Unit>) {
#pragma unroll 1
        for (; slot > 0; slot = slot + 1 == kSlots ? 0 : slot + 1) {
          await(arrived + kLeft + slot, phase);
          arrive_expecting(arrived + slot, 0);
          if (slot + 1 == kSlots) phase ^= 1;
        }
      }
    }
    if (!f.norm) continue;
    if (n_first >= 0 && p + 1 < n_phases) await(input_there, input);         // too few tiles to have waited: the next input's turn comes after this one's
    input ^= 1;
  }
}
#endif

#if defined(RIDGE_SM90)
// What the end of a tile takes beside its sums, for the row and the tokens of a lane.
template <int kRounds>
struct Ending {
  float *out, *residual, *relay;                                            // of its first token; residual, relay: null for none
  int64_t out_stride;
  __nv_bfloat16* narrow;                                                    // null: none
  float before[kRounds], residual_scale, scale, bias;
  int n_rounds;                                                             // tokens of the lane; negative: there is no such tile
  bool is_gate, has_bias, has_new_factors;                                  // the last: those of a norm whose first tile this is, or ones
};

// The end of a tile by a warp of its own: the team goes on with the next one meanwhile. (By the team's first warp, which the others waited for at the end of the next tile, nvfp4
// decoded at 662 tokens/s instead of 670.) Two tokens at a time, in kRounds rounds. All that follows waits for what is done after a phase's last sums, so what does not need them is looked
// up before, in the round of the loop before: within one round the compiler moves it behind the barrier. A norm's factor is made of its squares, `squared` [phase], while the phase's first tile is multiplied: after
// that, and not before it, it cost a layer 1.1 us.
template <class Unit, int kRounds, int kMost>
__device__ void finish_tiles(std::byte* memory, Barrier* squared, int team, const Phases<kMost>& c, int n_left) {
  constexpr int kTeams = Plan<Unit>::kTeams;
  const int n_teams = gridDim.x * kTeams, me = team * gridDim.x + blockIdx.x, lane = threadIdx.x % 32, first_token = lane / 16;
  constexpr bool kTakesOne = kMost > 1;                                      // take_input's kOneToken
  static_assert(!kTakesOne || kTeams == 2);
  const int n_tokens = kTakesOne ? 1 : c.phase[0].n_tokens;
  int p = 0, nth = 0;
  const auto look = [&] {                                                   // at tile nth of phase p, or what is next
    Ending<kRounds> e;
    e.n_rounds = -1;
    if constexpr (kMost == 1) {
      if (Place(c.phase[0], me, nth, n_teams).tile >= c.phase[0].n_tiles) return e;
    } else {
      while (p < c.n_phases && Place(c.phase[p], me, nth, n_teams).tile >= c.phase[p].n_tiles) ++p, nth = 0;
      if (p == c.n_phases) return e;
    }
    const Few& f = c.phase[p];
    const Place at(f, me, nth, n_teams);
    const Part& part = at.part(f);
    const Part& target = f.activate ? f.part[0] : part;
    const int row = (at.tile - part.first_block) * kTileRows + lane % 16;
    e.n_rounds = row < part.rows ? (n_tokens - first_token + 1) / 2 : 0;
    e.is_gate = f.activate && at.which == 0;
    e.has_bias = part.bias;
    e.has_new_factors = nth == 0;
    e.scale = e.n_rounds > 0 ? scale_of(part, row) : 0;
    e.bias = e.n_rounds > 0 && part.bias ? part.bias[row] : 0;
    e.out_stride = target.out_stride;
    e.out = target.out + first_token * e.out_stride + row;
    e.narrow = f.bf16_out ? f.bf16_out + first_token * f.bf16_stride + row : nullptr;
    e.residual_scale = f.residual_scale;
    e.residual = f.residual ? f.residual + first_token * f.residual_stride + row : nullptr;
    e.relay = kMost > 1 && f.relay ? f.relay + row : nullptr;
#pragma unroll
    for (int i = 0; i < kRounds; ++i)
      if (f.residual && i < e.n_rounds) e.before[i] = __ldcg(e.residual + 2 * i * f.residual_stride);
    return e;
  };
  int turn = 0, n_seen = 0;
  uint32_t sums = shared_address(memory) + c.sums_at + 4 * ((team * 2 * n_tokens + first_token) * kTokenSums + lane % 16), to_other = 4 * n_tokens * kTokenSums;
  float gate[kRounds], factor[kRounds];                                     // 1 where nothing is gated, and without a norm before
#pragma unroll
  for (int i = 0; i < kRounds; ++i) gate[i] = factor[i] = 1;
  Ending<kRounds> e = look();
#pragma unroll 1
  while (e.n_rounds >= 0) {
    if (e.has_new_factors) {
      const Few& f = c.phase[p];
      if (f.norm) await(squared + p, 0);
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        factor[i] = 1;
        if (!f.norm || first_token + 2 * i >= n_tokens) continue;
        const float4* const of_warps = reinterpret_cast<const float4*>(memory + c.sums_at + Layout<Unit>::squares_at(n_tokens)) + (first_token + 2 * i) * (kTeam / 4);
        const auto with_other_team = [&](int at) {
          const float4 v = of_warps[at], other = kTakesOne ? of_warps[kTeam / 4 + at] : float4{};
          return kTakesOne ? float4{v.x + other.x, v.y + other.y, v.z + other.z, v.w + other.w} : v;
        };
        factor[i] = rms_factor(add_warps(with_other_team(0), with_other_team(1)), f.cols, f.eps);
      }
    }
    await_sums(memory, Sums::there, team, turn, n_seen++ / 2);
    float sum[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      if (i >= e.n_rounds) continue;
      float of_warp[kTeam];
#pragma unroll
      for (int w = 0; w < kTeam; ++w) of_warp[w] = load_shared(sums + 4 * (2 * i * kTokenSums + w * 16));
      sum[i] = 0;
#pragma unroll
      for (int w = 0; w < kTeam; ++w) sum[i] += of_warp[w];
    }
    __syncwarp();
    if (n_left > 2) arrive_at_sums(memory, Sums::read, team, turn);
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      if (i >= e.n_rounds) continue;
      float v = __fmul_rn(__fmul_rn(sum[i], e.scale), factor[i]);      // never fused with the addition: every kernel of this arithmetic rounds here
      if (e.has_bias) v = __fadd_rn(v, e.bias);
      if (e.is_gate) {
        gate[i] = v;
        continue;
      }
      v = __fmul_rn(gate[i], v);
      gate[i] = 1;
      const float now = fmaf(e.residual_scale, v, e.before[i]);
      if (kMost > 1 && e.relay) store_relayed(e.relay, now);
      if (e.narrow) store_relayed(e.narrow + 2 * i * c.phase[p].bf16_stride, __float2bfloat16_rn(v));
      if (e.residual) e.residual[2 * i * c.phase[p].residual_stride] = now;
      e.out[2 * i * e.out_stride] = v;
    }
    turn ^= 1, sums += to_other, to_other = 0 - to_other, --n_left;
    const bool was_gate = e.is_gate;
    const ActKind kind = c.phase[p].act;
    ++nth;
    e = look();
    if (!was_gate) continue;
#pragma unroll
    for (int i = 0; i < kRounds; ++i)
      if (i < e.n_rounds) gate[i] = act(kind, gate[i]);
  }
}
#endif

}  // namespace ridge::cuda::few
