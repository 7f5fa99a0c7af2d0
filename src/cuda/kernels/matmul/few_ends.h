// The ends of tiles in the matmul of few tokens: sums of a team's warps are added up, scaled, multiplied with a norm's factor, activated or added to the residual stream, and leave.
#pragma once
#include "cuda/kernels/matmul/few_tokens.h"

namespace ridge::cuda::few {

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
  constexpr bool kOneToken = kMost > 1;                                      // as for take_input
  static_assert(!kOneToken || kTeams == 2);
  const int n_tokens = kOneToken ? 1 : c.phase[0].n_tokens;
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
          const float4 v = of_warps[at], other = kOneToken ? of_warps[kTeam / 4 + at] : float4{};
          return kOneToken ? float4{v.x + other.x, v.y + other.y, v.z + other.z, v.w + other.w} : v;
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
