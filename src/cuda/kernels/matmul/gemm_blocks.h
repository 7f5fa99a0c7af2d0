// The parts of the matmul for many tokens: which blocks there are (gemm_kernel.h has them, compiled by gemm_many.cu and gemm_fewer.cu), and what gemm.cu tells them.
#pragma once
#include <type_traits>

#include "cuda/kernels/matmul/gemm.h"
#include "cuda/lib/unit.h"

namespace ridge::cuda::blocks {

constexpr int kChains = 8, kRows = 128, kConsumers = 2;                     // of a block; kConsumers: warpgroups that multiply
constexpr int kFewerTokens = 184;                                           // of a block; kTileTokens, 128 and 64 are the others

// What becomes of a block's results: outputs, or what is added to the residual stream; what leaves activated, as a tile of the next matmul's input; the sums of each chain.
enum class GemmEnd { rows, silu, gelu_tanh, chains };

// Operand A is not decoded but read from shared memory.
template <class Unit>
constexpr bool kAsItLies = std::is_same_v<Unit, Bf16Unit>;
// Blocks that find room on a multiprocessor: with two 3 % more tokens/s of a model at 33 to 64 tokens, for a block of few tokens waits for itself. (Not where one has all chains of its rows, nor in bf16: they lost by it.)
template <class Unit>
constexpr int blocks_of_sm(GemmEnd end, int tokens) { return tokens == 64 && end != GemmEnd::rows && Unit::kScales == 0 && !kAsItLies<Unit> ? 2 : 1; }
// And that are to be there: where there is one for each multiprocessor at most, no two may share one while another has none.
template <class Unit>
int blocks_of_sm(GemmEnd end, int tokens, int n_items, int n_sms) { return n_items > n_sms ? blocks_of_sm<Unit>(end, tokens) : 1; }

struct Grid { int n_units, n_row_blocks, n_token_blocks, n_tokens; };
struct GemmCall {
  GemmParts parts;
  const std::byte* x;                        // tiles
  std::byte* out_tiles;                      // of what is activated
  float4* chain_sums;
  Grid grid;
};

// kTokens: of a block. Where they are not kTileTokens they may lie in two tiles of the input.
template <class Unit, int kTokens>
void multiply(const GemmCall& call, GemmEnd end, const Launch& l);

// Where the sums of a chain start: [token block][row block][chain][eight tokens][a block's threads that multiply] four sums, as products leave them (lib/mma.h).
inline __host__ __device__ int64_t chain_sums_at(int row_block, int token_block, int chain, int tokens_of_block, const Grid& grid) {
  return ((int64_t{token_block} * grid.n_row_blocks + row_block) * kChains + chain) * (tokens_of_block / 8) * (kConsumers * 128);
}

constexpr int64_t chain_sums_bytes(int tokens_of_block) { return int64_t{4} * kChains * kRows * tokens_of_block; }      // of a place

// Of a token, which may be one that pads the last tile.
__device__ inline float factor_of(const GemmParts& parts, int token) { return parts.factors ? __ldcg(parts.factors + token) : 1.0f; }

__device__ inline const GemmPart& part_of(const GemmParts& parts, int row_block) {
  int which = 0;
  while (which + 1 < parts.n && row_block >= parts.part[which + 1].first_block) ++which;
  return parts.part[which];
}

// Scaled, with a bias where there is one: every kernel of this arithmetic rounds as often. scale: of the row; factor: of the token's norm.
__device__ inline float finished(float sum, float scale, float factor, const float* bias) {
  const float v = __fmul_rn(__fmul_rn(sum, scale), factor);
  return bias ? __fadd_rn(v, *bias) : v;
}

}  // namespace ridge::cuda::blocks
