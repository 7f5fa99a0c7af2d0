// The rms norm between matmuls of several tokens, of which no kernel makes a whole row: the one before leaves its numbers times the norm's weights, and squares of them; the one after makes the factor of
// these while its first weights and its input are on their way, and multiplies its sums with it. (Normed by the blocks of the matmul that takes them, each a row or none, they were there 2.9 to 5.3 us after its release.)
#pragma once
#include "cuda/lib/async_copy.h"
#include "cuda/lib/lanes.h"
#include "cuda/lib/mma.h"
#include "cuda/lib/row_norm.h"
#include "cuda/lib/tile_squares.h"

namespace ridge::cuda::several {

// Of the input.
struct NormBefore {
  TileSquares squares;                       // null: none
  float eps;
};
// Of what is added to the residual stream.
struct NormAfter {
  Lanes lanes;                               // null: none
  const float* weight;                       // null: ones
  float weight_offset;
  TileSquares squares;
  int first_col;                             // of this launch
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// By warp `warp` of kWarps, after await_predecessors(): the factors of a token and every kWarps-th after it, of kTokens at most. All that they are made of is asked for at once.
template <int kWarps, int kTokens>
__device__ inline void make_factors(const NormBefore& norm, int n_tokens, int warp, int lane, float* factors) {
  constexpr int kOwn = (kTokens + kWarps - 1) / kWarps;
  const int n_tiles = norm.squares.cols / 16, kept = norm.squares.kept();
  const auto add_all = [&](auto quads) {                                       // of four sums
    constexpr int kQuads = quads;
    float4 held[kOwn][2][kQuads];
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int q = 0; q < kQuads; ++q)
          held[i][half][q] = warp + i * kWarps < n_tokens ? __ldcg(reinterpret_cast<const float4*>(norm.squares.at + ((warp + i * kWarps) * 64 + half * 32 + lane) * kept) + q) : float4{0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      float sum[2][2] = {};                                                    // of each half, every 128th tile and those between
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = half * 32 + lane;
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
          const float v[4] = {held[i][half][q].x, held[i][half][q].y, held[i][half][q].z, held[i][half][q].w};
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[half][j % 2] += first + 64 * (4 * q + j) < n_tiles ? v[j] : 0.0f;
        }
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
#pragma unroll
          for (int d = 1; d < 8; d *= 2) sum[half][odd] += __shfl_xor_sync(0xffffffffu, sum[half][odd], d);
      }
      float all = (sum[0][0] + sum[0][1]) + (sum[1][0] + sum[1][1]);
      all += __shfl_xor_sync(0xffffffffu, all, 16);
      all += __shfl_xor_sync(0xffffffffu, all, 8);
      if (lane == 0 && warp + i * kWarps < n_tokens) factors[warp + i * kWarps] = rms_factor(all, norm.squares.cols, norm.eps);
    }
  };
  if (kept == 4) add_all(std::integral_constant<int, 1>{});
  else add_all(std::integral_constant<int, 2>{});
}

// The weights of four numbers of a row.
__device__ inline float4 weights_of(const NormAfter& norm, int col) {
  if (!norm.lanes.data || !norm.weight) return {1, 1, 1, 1};
  const float4 w = *reinterpret_cast<const float4*>(norm.weight + norm.first_col + col);
  return {w.x + norm.weight_offset, w.y + norm.weight_offset, w.z + norm.weight_offset, w.w + norm.weight_offset};
}
// By four lanes in a row, which have a tile's 16 numbers of a token, each of them four.
__device__ inline void leave(const NormAfter& norm, int token, int col, const float4& v, const float4& w) {
  col += norm.first_col;
  norm.lanes.put_four(norm.lanes.at(token, col), {pack_bf16(v.x * w.x, v.y * w.y), pack_bf16(v.z * w.z, v.w * w.w)});
  const float squares = quad_sum(squares_of(v));
  if (threadIdx.x % 4 == 0) norm.squares.at[norm.squares.place(token, col)] = squares;
}

#endif

}  // namespace ridge::cuda::several
