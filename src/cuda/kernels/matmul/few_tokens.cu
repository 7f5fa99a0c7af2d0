// Matmul for 1 to 8 tokens, where a token costs the weights it reads. One block a multiprocessor stays and walks over row tiles; teams of 8 warps take tiles in turn,
// warp w of a team the units u = w mod 8, and the sums of the warps are added in their order: the same arithmetic as for many tokens.
//
// Weights go through a ring of slots in shared memory, one ring a team, a slot being units that lie together, so that one bulk copy fills it: 75 to 115 KB a
// multiprocessor are on their way. Filling begins before the kernel waits for its predecessor; but the input, which everything waits for, queues behind what was asked
// for before it, so where a norm makes the input, the rest of the ring waits for it (Plan::kFirst; in bf16, where memory is all that counts, it does not). A block
// takes more than half of a multiprocessor's shared memory: no two of one kernel meet on a multiprocessor while another has none, and the next kernel's block comes when
// this one's leaves.
//
// What a layer pays for beyond its bytes is waiting where one matmul ends and the next begins: for the release of a kernel, for its parameters, which are in no cache, for the input, for code. A load
// takes two to four times as long while rings are being filled, so neither a deeper ring nor one that is asked for earlier gains anything by itself (docs/gpu.md has the figures). What does:
// - For one token in formats of four and eight bits (kHasPhases) a layer's matmuls are phases of one kernel (cuda/phases.h): blocks stay, the next phase's weights are on their way when one ends, and its input comes
//   through a relay. Two inputs have room in shared memory, so that one is written while the other is still read.
// - The input of down comes in pieces: its first two thirds are made long before gate and up end, so down begins at once, and what is made last is needed last.
// - The end of a tile is short (finish_tiles): 0.5 us of it, in code that looked up its parameters after the sums had come, made every later block late.
// Half the instructions around the input, with twice the registers and one more slot, made a layer 2.5 us faster (of 46 in nvfp4), the head 6 %. All of a layer's matmuls have the same code, which is near:
// any one of them as another kernel (more teams, longer slots, which are 6 % faster in a long run) made a layer 1.5 to 4 us slower.
//
// What was tried on the H200, nvfp4 head (151936 x 4096), share of the bandwidth: copies of a unit by the lanes of its warp (cp.async; 140 instructions a unit) 0.58;
// bulk copies asked for by the multiplying warps in turn 0.56, waiting for the slot before the multiplication instead of after it 0.54; one warp that asks for both
// teams 0.74; one for each 0.80; with short code and registers to spare, 0.92. Prefetching further units into the second-level cache made it slower.
//
// What surrounds a matmul is done on its way (Around): the norm of its input by each block for itself, which costs less than a kernel in between, but for its factor, with which the sums are multiplied where they
// end; the addition to the residual stream or the activation there, too. All of it in the order and rounding of other numbers of tokens.
#include <algorithm>

#include "cuda/kernels/matmul/few_ends.h"
#include "cuda/kernels/matmul/few_input.h"
#include "cuda/kernels/matmul/few_tokens.h"

namespace ridge::cuda {
namespace {

using namespace few;

constexpr int kAloneBytes = 116 << 10;                                      // of shared memory: two blocks of this do not fit

// A launch's parameters are in no cache when it starts, and a warp that needs a line of 64 bytes of them waits for it: warps ask for a line each, all at once.
template <class Parameters>
__device__ void fetch_line(const Parameters& c, int line, int n_bytes) {
  if (line * 64 < n_bytes && reinterpret_cast<const int*>(&c)[line * 16] == 0x7fedcba9) __nanosleep(0);
}

// A quarter of a multiprocessor has 16,384 registers, for five of a block's 20 warps and two of attention's, which is to find room beside it: 72 each, as the compiler
// gives them to blocks of 800 threads.
template <class Unit>
constexpr int kBounds = Plan<Unit>::kTeams == 2 ? 800 : (kTeam + 2) * 32;

// Teams, and for each a warp that asks for its weights (one warp for both: a lane that waits keeps the other from asking) and one that finishes its tiles.
// rests: phases have tiles that end within a round of the ring, or inputs whose last piece is less, which costs those that have not 1.8 %. tokens: there are some, and what the
// next ones are made of is asked for before the ones before are used. parts: the input is in_parts, and no team has more than a tile.
enum class Inputs { whole, rests, tokens, parts };
template <class Unit, int kMost, Inputs kInputs>
__global__ void __launch_bounds__(kBounds<Unit>, 1) few_tokens_kernel(const __grid_constant__ Phases<kMost> c) {
#if defined(RIDGE_SM90)
  constexpr int kTeams = Plan<Unit>::kTeams, kSlots = Plan<Unit>::kSlots, kEach = Plan<Unit>::kEach, kSlotUnits = kEach * kTeam;
  using L = Layout<Unit>;
  RIDGE_DYNAMIC_SHARED(memory, 128);
  Barrier* const gates = reinterpret_cast<uint64_t*>(memory);               // [team][slot] arrived, then left
  constexpr int kLeft = kTeams * kSlots;
  Barrier* const input_there = gates + 2 * kLeft;
  Barrier* const squared = input_there + 1;
  const int n_teams = gridDim.x * kTeams;
  const int any_warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0);    // the compiler sees that a warp agrees on it
  constexpr int kFirstBytes = offsetof(Phases<kMost>, phase) + sizeof(Few);    // of the parameters, those that are wanted at once
  constexpr bool kRests = kInputs == Inputs::rests, kParts = kInputs == Inputs::parts;
  constexpr bool kPhased = kMost > 1;                                        // then there is one token
  const int n_phases = kPhased ? c.n_phases : 1;
  start_dependents();
  fetch_line(c, any_warp, kFirstBytes);

  if (any_warp >= kTeams * (kTeam + 1)) {
    const int team = any_warp - kTeams * (kTeam + 1), me = team * gridDim.x + blockIdx.x;
    __syncthreads();
    if (kPhased && team == 0) fetch_line(c, kFirstBytes / 64 + int(threadIdx.x % 32), kFirstBytes + (n_phases - 1) * int(sizeof(Few)));      // of later phases: nobody waits for them yet
    int n_all = 0;
    for (int p = 0; p < n_phases; ++p) n_all += n_tiles_of(c.phase[p], me, n_teams);
    await_predecessors();
    clear(c.cleared, (blockIdx.x * kTeams + team) * 32 + threadIdx.x % 32, gridDim.x * kTeams * 32);
    if (kPhased || c.phase[0].n_tokens <= 2) finish_tiles<Unit, 1>(memory, squared, team, c, n_all);
    else finish_tiles<Unit, kFewTokens / 2>(memory, squared, team, c, n_all);
    return;
  }
  if (any_warp >= kTeams * kTeam) {
    if (threadIdx.x == kTeams * kTeam * 32) {
      for (int i = 0; i < kLeft; ++i) init_barrier(gates + i, 1), init_barrier(gates + kLeft + i, kTeam * kWarpArrivals);
      init_barrier(input_there, 1);
      for (int p = 0; p < kMost; ++p) init_barrier(squared + p, kTeams * kTeam * kWarpArrivals);
      make_barriers<kTeams>(memory);
      publish_barriers();
    }
    __syncwarp();
    __syncthreads();
    if (threadIdx.x % 32 == 0) ask_for_weights<Unit, kRests>(memory, any_warp - kTeams * kTeam, c);
    return;
  }
  const int lane = lane_of_warp(), g = lane / 4, q = lane % 4;
  const int team = any_warp / kTeam, warp = any_warp % kTeam;
  const int me = team * gridDim.x + blockIdx.x;
  float* const all_sums = reinterpret_cast<float*>(memory + c.sums_at);
  int turn = 0, n_done = 0;
  // The ring, as the producer goes through it.
  Barrier* const arrived = gates + team * kSlots;
  const std::byte* const ring = memory + L::kGates + team * L::kRing + warp * Unit::kBytes;
  int slot = 0;
  uint32_t phase = 0;
  __syncthreads();
#pragma unroll 1
  for (int p = 0; p < n_phases; ++p) {
    const Few& f = c.phase[p];
    // Tokens that are not there stay zeros.
    int n_tokens = f.n_tokens, n_units = f.n_units;                           // n_tokens: where the compiler knows that it is 1, loads of tokens become branches
    uint32_t my_x = shared_address(memory) + f.input_at + (g < n_tokens ? g : 0) * f.shared_stride + 2 * (lane_input<Unit::kHalves>(q, 0) + kUnit * warp);
    keep(n_tokens, n_units, my_x);
    const int n_pieces = kPhased && p > 0 && f.x_bf16 ? (kRests ? f.cols + kPiece - 1 : f.cols) / kPiece : 0;
    const bool next_in_pieces = kPhased && p + 1 < n_phases && c.phase[p + 1].x_bf16;
    const Pieces<kRests> pieces(memory, f);
    [[maybe_unused]] const Parts parts{f, memory + f.input_at};
    [[maybe_unused]] const int n_inputs = kParts ? f.cols / kPiece : 1;
    if constexpr (kParts) {
      await_predecessors();
      parts.pass(0, n_inputs);
    } else if (n_pieces > 0) {
      pieces.pass(0, n_pieces);
    } else {
      take_input<kTeams, kInputs == Inputs::tokens, kPhased>(memory + f.input_at, all_sums + L::squares_at(n_tokens) / 4, input_there, squared + p, f, n_tokens, p > 0);
      meet<kTeams>();
    }

    constexpr int kSecond = 2 * (lane_input<Unit::kHalves>(0, 1) - lane_input<Unit::kHalves>(0, 0)), kStep = 2 * kUnit * kTeam;
    const bool there = g < n_tokens;
    struct Loaded { typename Unit::Held held; uint4 x0, x1; };
    Loaded loaded[2];                                                           // units whose registers are their own, so that both are on their way at once
    loaded[0].x0 = loaded[0].x1 = loaded[1].x0 = loaded[1].x1 = {0, 0, 0, 0};
    static_assert(kEach <= 2);
    const auto take = [&](int slot, auto&& multiply_slot) {
      await(arrived + slot, phase);
      multiply_slot(ring + slot * L::kSlotBytes);
      __syncwarp();
      arrive_as_warp(arrived + slot + kLeft, lane);
    };
    const auto advance = [&] {
      if (++slot == kSlots) slot = 0, phase ^= 1;
    };
    const int n_whole = n_units / kSlotUnits, n_rest = n_units % kSlotUnits;
    // Where a tile is whole runs, the next unit is on its way to registers while one is multiplied, over the ends of slots, runs and tiles.
    constexpr int kRuns = Plan<Unit>::kRuns;
    constexpr bool kWholeRing = kRunIsRound<Unit>;
    const bool runs = kRuns > 0 && n_rest == 0 && (kRests || n_whole * kEach % std::max(kRuns, 1) == 0);
    const int n_tail = kRests && kWholeRing ? n_whole % kSlots : 0;           // slots of a round that is not whole
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
      arrive_as_warp(arrived + s + kLeft, lane);
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
          if (next_in_pieces && last_tile) Pieces<kRests>(memory, c.phase[p + 1]).ask(0);
          const auto run_units = [&](int wraps_at, int ends_at) {             // of how many are left: then the input begins anew, or there is nothing more to load
#pragma unroll 1
            for (; n_left > 0; n_left -= kRuns) {
#pragma unroll
              for (int i = 0; i < kRuns; ++i) {
                if (i + 1 < kRuns) load_unit(loaded[(i + 1) % 2], i + 1, x);
                else {
                  if (kWholeRing) phase ^= 1;
                  x = n_left == wraps_at ? my_x : x + kRuns * kStep;
                  if (n_left != ends_at) load_unit(loaded[0], 0, x);
                }
                multiply(loaded[i % 2]);
              }
            }
          };
          if constexpr (kParts) {
#pragma unroll 1
            for (int part = 1;; ++part) {
              n_left = kPiece / (kUnit * kTeam);
              run_units(0, part == n_inputs ? kRuns : 0);
              if (part == n_inputs) break;
              parts.pass(part, n_inputs);
              x = my_x + part % 2 * parts.bytes();
              load_input(loaded[0], x);                                       // what was loaded was not it
            }
          } else if constexpr (!kPhased) {
            n_left *= kEach;
            run_units(kRuns, last_tile ? kRuns : 0);
          } else {
            // The first tile of an input in pieces piece by piece, others as one.
            constexpr int kOfPiece = kPiece / (kUnit * kTeam);
            const bool by_pieces = n_pieces > 0 && nth == 0;
            const int n_all = (n_whole - n_tail) * kEach, n_parts = !by_pieces ? 1 : kRests ? (n_all + kOfPiece - 1) / kOfPiece : n_pieces, n_of_part = by_pieces ? kOfPiece : n_all;
#pragma unroll 1
            for (int part = 1; part <= n_parts; ++part) {
              const int ends_at = part == n_parts ? kRuns : 0, wraps_at = n_tail == 0 ? ends_at : 0;
              n_left = kRests && part == n_parts ? n_all - (n_parts - 1) * n_of_part : n_of_part;
              run_units(wraps_at, last_tile || n_tail > 0 ? ends_at : 0);
              if (kRests ? part == n_parts && (!by_pieces || part == n_pieces) : part == n_parts) break;
              pieces.pass(part, n_pieces);
              if (kRests && part == n_parts) break;
              load_input(loaded[0], x);                                       // what was loaded was not it
            }
            if constexpr (kRests && kWholeRing) {
              if (n_tail > 0) {
#pragma unroll 1
                for (int s = 0; s < kSlots; ++s) {
                  if (s < n_tail) multiply_whole(s, x), x += kEach * kStep;
                  else take(s, [](const std::byte*) {});
                }
                phase ^= 1;
                if (!last_tile) load_unit(loaded[0], 0, my_x);
              }
            }
          }
        }
      }
      if constexpr (!kPhased) {
#pragma unroll 1
        for (; n_left > 0; --n_left, x += kEach * kStep) {
          multiply_whole(slot, x);
          advance();
        }
      }
      if (!kPhased && n_rest > 0) {
        take(slot, [&](const std::byte* units) {
#pragma unroll 1
          for (int each = 0; each * kTeam + warp < n_rest; ++each) {
            loaded[0].held = Unit::template load<Staged>(units + each * kTeam * Unit::kBytes, lane), load_input(loaded[0], x + each * kStep);
            multiply(loaded[0]);
          }
        });
        advance();
      }

      float* const sums = all_sums + (team * 2 + turn) * n_tokens * kTokenSums + warp * 16 + g;
      if (n_done++ >= 2) await_sums(memory, Sums::read, team, turn, (n_done - 3) / 2);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (2 * q + i % 2 < n_tokens) sums[(2 * q + i % 2) * kTokenSums + (i >= 2 ? 8 : 0)] = acc[0][i];
      __syncwarp();
      arrive_at_sums(memory, Sums::there, team, turn);
      turn ^= 1;
    }
    if (me >= f.n_tiles) {                                                    // the others wait for this team's part of the input
      for (int i = 1; i < n_pieces; ++i) pieces.pass(i, n_pieces);
      if constexpr (kParts)
        for (int i = 1; i < n_inputs; ++i) parts.pass(i, n_inputs);
    }
  }
#endif
}

// Rows of tokens start in different banks.
template <class Unit>
int shared_stride_of(const Few& f) { return (f.in_parts ? kPiece : f.n_units * kUnit) * 2 + (Unit::kHalves ? 64 : 16); }
template <class Unit>
int input_bytes_of(const Few& f) { return (f.in_parts ? 2 : 1) * f.n_tokens * shared_stride_of<Unit>(f); }

template <class Unit>
bool fits(const Few& f, int n_bytes) {
  using L = Layout<Unit>;
  return std::max(L::kInputs + input_bytes_of<Unit>(f) + L::sums_bytes(f.n_tokens), kAloneBytes) <= n_bytes;
}

// As a whole, or in parts, with all of a multiprocessor's shared memory.
template <class Unit>
bool find_room(Few& f, const Launch& l) {
  if (fits<Unit>(f, l.max_shared_bytes)) return true;
  int n_tiles = 0;
  for (int i = 0; i < f.n_parts; ++i) n_tiles += (f.part[i].rows + kTileRows - 1) / kTileRows;
  if (Plan<Unit>::kRuns == 0 || Plan<Unit>::kTeams != 2 || f.norm || f.activate || f.cols % kPiece > 0 || n_tiles > Plan<Unit>::kTeams * std::min(n_tiles, l.n_sms)) return false;
  f.in_parts = true;
  return fits<Unit>(f, l.max_shared_bytes + kSharedForOthers);
}

template <class Unit, Inputs kInputs, int kMost>
void run(Phases<kMost> c, const Launch& l) {
  using L = Layout<Unit>;
  int input_bytes[2] = {}, n_tiles = 0;                                      // of even phases, of odd ones
  for (int p = 0; p < c.n_phases; ++p) {
    Few& f = c.phase[p];
    f.shared_stride = shared_stride_of<Unit>(f);
    input_bytes[p % 2] = std::max(input_bytes[p % 2], input_bytes_of<Unit>(f));
  }
  c.sums_at = L::kInputs + input_bytes[0] + input_bytes[1];
  for (int p = 0; p < c.n_phases; ++p) {
    Few& f = c.phase[p];
    f.input_at = L::kInputs + (p % 2 > 0 ? input_bytes[0] : 0);
    f.n_tiles = 0;
    for (int i = 0; i < f.n_parts; ++i) {
      f.part[i].first_block = f.activate ? 0 : f.n_tiles;
      f.part[i].scale *= Unit::kFactor;
      const int n = (f.part[i].rows + kTileRows - 1) / kTileRows;
      f.n_tiles = f.activate ? n : f.n_tiles + n;
    }
    n_tiles = std::max(n_tiles, f.n_tiles);
  }
  const int bytes = std::max(c.sums_at + L::sums_bytes(c.phase[0].n_tokens), kAloneBytes);
  const auto kernel = few_tokens_kernel<Unit, kMost, kInputs>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  launch_kernel(kernel, std::min(n_tiles, l.n_sms), Plan<Unit>::kTeams * (kTeam + 2) * 32, bytes, l.stream, c);
}

bool describe(Few& f, const Matmul& op, const Around& around, const Launch& l) {
  if (op.x.rows < 1 || op.x.rows > kFewTokens || l.compute_capability < 90 || op.x.cols % 4 > 0 || op.x.stride % 16 > 0) return false;
  f = {};
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
  if (around.x_relay) f.x = around.x_relay;
  f.relay = around.relay;
  return with_unit(*first, [&](auto unit) { return find_room<decltype(unit)>(f, l); });
}

// In bf16, where memory is all that counts, a kernel for each matmul is faster: twelve layers give 713 tokens/s, and 683 as phases (without pieces).
template <class Unit>
constexpr bool kHasPhases = Plan<Unit>::kRuns > 0;

}  // namespace

bool takes_few_tokens(const Matmul& op, const Launch& l) {
  Few f;
  return describe(f, op, {}, l) && !several_tokens_gain(op, l);
}

bool few_tokens_phased(const Matmul& op) {
  return with_unit(first_of(op), [](auto unit) { return kHasPhases<decltype(unit)>; });
}

bool few_tokens_follow(const Matmul& next, const Matmul& op, const Launch& l) {
  if (!few_tokens_phased(op) || !same_unit(first_of(next), first_of(op))) return false;
  constexpr int kMostCols = 4 * kPiece;
  const bool have_room = with_unit(first_of(op), [&](auto unit) {
    using L = Layout<decltype(unit)>;
    return L::kInputs + 2 * (2 * kMostCols + 16) + L::sums_bytes(1) <= l.max_shared_bytes;
  });
  const auto fit = [&](const Matmul& m) { return m.x.rows == 1 && m.x.cols <= kMostCols && with_unit(first_of(m), [&](auto unit) { return fit_a_phase<decltype(unit)>(m.x.cols); }); };
  return have_room && fit(next) && fit(op);
}

bool few_tokens_occupy(const Matmul& op, const Launch& l) {
  return with_unit(first_of(op), [&](auto unit) { return first_of(op).rows >= int64_t{kTileRows} * Plan<decltype(unit)>::kTeams * l.n_sms; });
}

void matmul_few_tokens(std::span<const FewPhase> phases, const RelayWords& cleared, const Launch& l) {
  const auto run_as = [&]<class Unit, int kMost>(Unit, std::integral_constant<int, kMost>) {
    Phases<kMost> c{};
    c.cleared = cleared, c.n_phases = int(phases.size());
    bool rests = false;
    for (size_t i = 0; i < phases.size(); ++i) describe(c.phase[i], phases[i].op, phases[i].around, l), rests = rests || c.phase[i].cols % kPiece > 0;
    if constexpr (kMost > 1) {
      if (rests) return run<Unit, Inputs::rests>(c, l);
    } else if constexpr (kHasPhases<Unit>) {
      if (c.phase[0].in_parts) return run<Unit, Inputs::parts>(c, l);
    }
    if constexpr (std::is_same_v<Unit, Bf16Unit>)                              // 2.7 % more tokens/s at a batch of 8; of 2, and of 2 and 4 in nvfp4, 1 to 3 % less
      if (c.phase[0].n_tokens > 4) return run<Unit, Inputs::tokens>(c, l);
    run<Unit, Inputs::whole>(c, l);
  };
  with_unit(first_of(phases[0].op), [&](auto unit) {
    if constexpr (kHasPhases<decltype(unit)>)
      if (phases.size() > 1) return run_as(unit, std::integral_constant<int, kMostPhases>{});
    run_as(unit, std::integral_constant<int, 1>{});
  });
}

}  // namespace ridge::cuda
