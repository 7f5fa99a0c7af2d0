// What the matmul of few tokens (few_tokens.cu) is made of: its parameters, what its shared memory holds, what its teams go through and in what order weights come. A block has teams of 8 warps that multiply, and
// for each a warp that asks for its weights and one that finishes its tiles. Its input is in few_input.h, the ends of its tiles are in few_ends.h.
#pragma once
#include <algorithm>
#include <type_traits>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/matmul/few_barriers.h"
#include "cuda/kernels/matmul/gemm.h"
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

// Where a run is a round of the ring, every run begins where the ring does. A tile that ends elsewhere leaves the rest of a round empty: slots that are passed on with nothing in them.
template <class Unit>
constexpr bool kRunIsRound = Plan<Unit>::kRuns > 0 && Plan<Unit>::kRuns == Plan<Unit>::kSlots * Plan<Unit>::kEach;

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

}  // namespace ridge::cuda::few
