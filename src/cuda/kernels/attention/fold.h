// Results of a row's tiles, o [row][tile][head][dim] and m and l behind them, become the row's result: they are folded in order of position (lib/flash.h), 32 dimensions of a head at a time.
#pragma once
#include "cuda/lib/flash.h"
#include "cuda/lib/relay.h"

namespace ridge::cuda {

struct FoldRoom {                                                            // of 32 tiles, in shared memory
  float values[32][32];
  float2 factors[32];                                                        // keep, take
  float sums[32];
};

// The results come in a relay, with m and l for each 32 dimensions [row][tile][head][dim / 32]: whoever folds them is the only one to read them, and leaves them unmade. By blocks of 256 threads; this one
// has unit first_unit and those `apart` from it.
__device__ inline void fold_relayed(FoldRoom& s, const PagedAttention& op, const StepView& step, float* relay, int n_tiles, int first_unit, int apart) {
  const int thread = threadIdx.x, lane = thread % 32, units = op.head_dim / 32;
  const float factor = exponent_factor(op);
  const float* const sinks = reinterpret_cast<const float*>(op.sinks.data);
  float2* const states = reinterpret_cast<float2*>(relay + op.q.rows * int64_t{n_tiles} * op.n_heads * op.head_dim);
  for (int unit = first_unit; unit < int(op.q.rows) * op.n_heads * units; unit += apart) {
    const int first_dim = unit % units * 32, head = unit / units % op.n_heads, row = unit / units / op.n_heads;
    const Seen seen = seen_by(op, step.positions[row]);
    const int last = (seen.to - 1) / kFlashTile;
    float m = -CUDART_INF_F, l = 0, o = 0;
    for (int base = seen.from / kFlashTile; base <= last; base += 32) {
      const int n = min(32, last - base + 1);
      const auto place = [&](int tile) { return (int64_t{row} * n_tiles + base + tile) * op.n_heads + head; };
      if (const int tile = thread / 8; tile < n) {
        float4* const from = reinterpret_cast<float4*>(relay + place(tile) * op.head_dim + first_dim) + thread % 8;
        float4 v;
        do v = load_relayed(from);
        while (unmade(v));
        *from = not_made<float4>();
        *reinterpret_cast<float4*>(&s.values[tile][thread % 8 * 4]) = v;
      }
      if (thread < 32) {
        float2 state{-CUDART_INF_F, 0};
        if (lane < n) {
          float2* const from = states + place(lane) * units + unit % units;
          do state = load_relayed(from);
          while (unmade(state.x) || unmade(state.y));
          *from = {__uint_as_float(kUnmade), __uint_as_float(kUnmade)};
        }
        float top = state.x, unused = 0;                                                 // of all tiles up to the lane's
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
          const float other = __shfl_up_sync(0xffffffffu, top, d);
          if (lane >= d) top = fmaxf(top, other);
        }
        float before = __shfl_up_sync(0xffffffffu, top, 1);
        before = lane == 0 ? m : fmaxf(before, m);
        m = fmaxf(m, __shfl_sync(0xffffffffu, top, 31));
        fold(before, unused, state.x, 0, factor, s.factors[lane].x, s.factors[lane].y);
        s.sums[lane] = state.y;
      }
      __syncthreads();
      if (thread < 32) {
#pragma unroll 8
        for (int i = 0; i < n; ++i) l = folded(l, s.sums[i], s.factors[i].x, s.factors[i].y), o = folded(o, s.values[i][lane], s.factors[i].x, s.factors[i].y);
      }
      __syncthreads();
    }
    if (thread < 32) reinterpret_cast<float*>(op.out.data + row * op.out.stride)[head * op.head_dim + first_dim + lane] = __fmul_rn(o, norm_of(m, l, factor, sinks ? sinks + head : nullptr));
  }
}

}  // namespace ridge::cuda
