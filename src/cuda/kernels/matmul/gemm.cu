// The matmul for many tokens on sm_90a: its input as tiles, the blocks that take least time (gemm_kernel.h), and what becomes of the sums of chains.
//
// A block that walks over all inputs of 128 rows is as long on its way whether others have work or not: o and down of an 8B model are 32 such rows of blocks for 132 multiprocessors. So blocks may
// take one chain at a time, which makes eight times as many items, and leave its sums in f32 for a kernel that adds them up in order; and fewer tokens at a time, which is more to read, but not to multiply.
#include <algorithm>

#include "cuda/kernels/matmul/gemm.h"
#include "cuda/kernels/matmul/gemm_blocks.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/tensor_map.h"
#include "cuda/lib/units.h"

namespace ridge::cuda {
namespace {

using namespace blocks;

// A thread copies two inputs of four lane quarters: chunk c, half of operand c / 2.
template <bool kHalves>
__global__ void tile_input_kernel(std::byte* tiles, Tensor x, int n_units) {
  follow();
  const int token = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, unit = i / 8, c = i % 8;
  if (unit >= n_units) return;
  const float* row = reinterpret_cast<const float*>(x.data + token * x.stride);
  uint32_t v[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int64_t k = unit * kUnit + lane_input<kHalves>(q, c / 4) + 2 * (c % 4);
    v[q] = pack_bf16(k < x.cols ? row[k] : 0.0f, k + 1 < x.cols ? row[k + 1] : 0.0f);
  }
  *reinterpret_cast<uint4*>(tiles + tile_place(token, unit * kUnit + 2 * c, n_units, false)) = {v[0], v[1], v[2], v[3]};
}

// The sums of chains, in order from zero. A block has eight tokens of a block's tile, a thread the four numbers that it had there.
__global__ void __launch_bounds__(kConsumers * 128) add_chains_kernel(const __grid_constant__ GemmParts parts, const float4* chain_sums, Grid grid, int tokens_of_block) {
  start_dependents();
  const int n_groups = tokens_of_block / 8, place = blockIdx.x / n_groups, of_tokens = blockIdx.x % n_groups, row_block = place % grid.n_row_blocks, token_block = place / grid.n_row_blocks;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const GemmPart& part = part_of(parts, row_block);
  const int first_row = (row_block - part.first_block) * kRows + warp * kTileRows + lane / 4, first_token = token_block * tokens_of_block + of_tokens * 8 + lane % 4 * 2;
  float scale[2] = {};
  const float* bias[2] = {nullptr, nullptr};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + 8 * r;
    if (row >= part.rows) break;
    scale[r] = scale_of(part, row);
    if (part.bias) bias[r] = part.bias + row;
  }
  await_predecessors();
  if (token_block * tokens_of_block + of_tokens * 8 >= grid.n_tokens) return;
  const float4* const from = chain_sums + chain_sums_at(row_block, token_block, 0, tokens_of_block, grid) + of_tokens * (kConsumers * 128) + threadIdx.x;
  float4 of_chain[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) of_chain[c] = __ldcg(from + c * n_groups * (kConsumers * 128));
  float sum[4] = {0, 0, 0, 0};
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum[0] += of_chain[c].x, sum[1] += of_chain[c].y, sum[2] += of_chain[c].z, sum[3] += of_chain[c].w;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = first_row + i / 2 * 8, token = first_token + i % 2;
    if (row >= part.rows || token >= grid.n_tokens) continue;
    const float v = finished(sum[i], scale[i / 2], factor_of(parts, token), bias[i / 2]);
    if (float* const x = parts.residual.x) x[token * parts.residual.stride + row] = __fadd_rn(x[token * parts.residual.stride + row], v);
    else part.out[token * part.out_stride + row] = v;
  }
}

// Row blocks of the parts, each of which is told where its own begin.
int lay_out(GemmParts& parts, bool gated) {
  int n = 0;
  for (int i = 0; i < parts.n; ++i) {
    parts.part[i].first_block = n;
    n += (parts.part[i].rows + kRows - 1) / kRows;
  }
  return gated ? parts.part[0].rows / (kRows / 2) : n;
}

template <class Unit>
bool may_go(const GemmWay& way, int n_row_blocks, int n_units, int n_tokens, bool gated) {
  if (way.tokens != 64 && way.tokens != 128 && way.tokens != kFewerTokens && way.tokens != kTileTokens) return false;
  if (Unit::kScales > 0 && way.tokens > 128) return false;                     // registers
  if (way.tokens == kFewerTokens) return !gated && !way.by_chain;
  const int64_t n_places = int64_t{n_row_blocks} * ((n_tokens + way.tokens - 1) / way.tokens);
  return !way.by_chain || (!gated && n_units >= kChains && n_places * chain_sums_bytes(way.tokens) <= kMostChainSums);
}

// What a block takes for a unit, in ns, as measured on an H200 (docs/gpu.md; fp8 in blocks is a guess): its products or, of few tokens and where there are scales, the way of a warp through it.
template <class Unit>
double ns_of_unit(int tokens) {
  if constexpr (Unit::kScales > 0) return (tokens == 64 ? 390 : 570) * (Unit::kMinimums ? 1.7 : Unit::kScales == 1 ? 0.8 : 1);
  return tokens == 64 ? (kAsItLies<Unit> ? 208 : 250) : tokens == 128 ? (kAsItLies<Unit> ? 331 : 340) : 2.5 * tokens;
}

// The way of least time, where none is wanted: rounds of blocks, each as long as its units, and what ends cost. Units take as long as their weights come from memory where that is longer (4.5 TB/s;
// 10 where they are read again, as tokens are; chains of other tokens come too late for that).
template <class Unit>
GemmWay way_of(int n_row_blocks, int n_units, int n_tokens, GemmEnd wanted, const Launch& l) {
  const bool gated = wanted != GemmEnd::rows;
  if (l.gemm_way.tokens > 0 && may_go<Unit>(l.gemm_way, n_row_blocks, n_units, n_tokens, gated)) return l.gemm_way;
  GemmWay best{};
  double least = 1e30;
  for (const GemmWay way : {GemmWay{64, false}, {64, true}, {128, false}, {128, true}, {kFewerTokens, false}, {kTileTokens, false}, {kTileTokens, true}}) {
    if (!may_go<Unit>(way, n_row_blocks, n_units, n_tokens, gated)) continue;
    const int tokens = way.tokens, n_token_blocks = (n_tokens + tokens - 1) / tokens, n_places = n_row_blocks * n_token_blocks;
    const GemmEnd end = way.by_chain ? GemmEnd::chains : wanted;
    const int n_items = way.by_chain ? n_places * kChains : n_places, n_beside = blocks_of_sm<Unit>(end, tokens, n_items, l.n_sms), most = n_beside * l.n_sms, n_rounds = (n_items + most - 1) / most, at_once = std::min(n_items, most);
    const double weights = double(kRows / kTileRows) * Unit::kBytes, from_memory = way.by_chain ? weights : weights / n_token_blocks, input = tokens * 128 / (kAsItLies<Unit> ? 2 : 1);
    const double of_unit = std::max(n_beside * ns_of_unit<Unit>(tokens), at_once * (from_memory / 4500 + (weights - from_memory + input) / 10000));
    const double time = way.by_chain ? n_rounds * (n_units / double(kChains) * of_unit + tokens * 3) + 500 + double(n_places) * double(chain_sums_bytes(tokens)) / 4000 : n_rounds * (n_units * of_unit + tokens * 15);
    if (time < least) best = way, least = time;
  }
  return best;
}

template <class Unit>
void run(GemmParts parts, GemmEnd end, const Tensor& x, std::byte* tiles, bool is_tiled, std::byte* out_tiles, const Launch& l) {
  const int n_units = int((x.cols + kUnit - 1) / kUnit), n_row_blocks = lay_out(parts, end != GemmEnd::rows);
  if (!is_tiled) launch_kernel(tile_input_kernel<Unit::kHalves>, dim3((n_units * 8 + 255) / 256, x.rows), 256, 0, l.stream, tiles, x, n_units);
  for (int i = 0; i < parts.n; ++i) parts.part[i].scale *= Unit::kFactor;
  const GemmWay way = way_of<Unit>(n_row_blocks, n_units, int(x.rows), end, l);
  const int n_token_blocks = int((x.rows + way.tokens - 1) / way.tokens);
  const GemmCall call{parts, tiles, out_tiles, l.chain_sums, {n_units, n_row_blocks, n_token_blocks, int(x.rows)}};
  if (way.by_chain) end = GemmEnd::chains;
  switch (way.tokens) {
    case 64: multiply<Unit, 64>(call, end, l); break;
    case 128: multiply<Unit, 128>(call, end, l); break;
    default:
      if constexpr (Unit::kScales == 0) way.tokens == kFewerTokens ? multiply<Unit, kFewerTokens>(call, end, l) : multiply<Unit, kTileTokens>(call, end, l);
  }
  if (way.by_chain)
    launch_kernel(add_chains_kernel, n_row_blocks * n_token_blocks * (way.tokens / 8), kConsumers * 128, 0, l.stream, parts, static_cast<const float4*>(l.chain_sums), call.grid, way.tokens);
}

}  // namespace

bool gemm_takes(const Matmul& op, const Launch& l) {
  if (!kHasSm90a || l.compute_capability != 90 || op.x.rows < kGemmFrom) return false;
  CUtensorMap map;
  const auto is_mapped = [&](const Tensor& t) { return !t.data || map_outputs(map, t.f32(), t.rows, t.cols, t.stride / 4, 8); };
  if (!std::all_of(op.out.begin(), op.out.end(), is_mapped)) return false;
  return std::none_of(op.w.begin(), op.w.end(), [](const Weight* w) { return w && w->arithmetic.x == FormatId::f32; });
}

bool gemm_takes_tiles(const Matmul& op, const Launch& l) {
  return gemm_takes(op, l) && std::all_of(op.w.begin(), op.w.end(), [&](const Weight* w) { return !w || takes_halves(*w) == takes_halves(first_of(op)); });
}

Tiles tiles_for(const Matmul& op, std::byte* data) { return {data, takes_halves(first_of(op))}; }

bool gemm_activates(const Matmul& op, const Activate& a, const Matmul& next, const Launch& l) {
  return gemm_takes_tiles(op, l) && gemm_takes_tiles(next, l) && takes_halves(first_of(op)) == takes_halves(first_of(next)) && op.w[0] && op.w[1] && !op.w[2] && same_unit(*op.w[0], *op.w[1]) && op.w[0]->rows == op.w[1]->rows && op.w[0]->rows % 64 == 0 &&
         a.gate.data == op.out[0].data && a.up.data == op.out[1].data && a.out.cols == op.w[0]->rows && (a.kind == ActKind::silu || a.kind == ActKind::gelu_tanh);
}

void gemm(const Weight& first, const GemmParts& parts, const Tensor& x, std::byte* tiles, bool is_tiled, const Launch& l) {
  with_unit(first, [&](auto unit) { run<decltype(unit)>(parts, GemmEnd::rows, x, tiles, is_tiled, nullptr, l); });
}

void gemm_activate(std::byte* out_tiles, const Matmul& op, ActKind kind, std::byte* tiles, bool is_tiled, const float* factors, const Launch& l) {
  const GemmParts parts{.part = {part_from(op, 0), part_from(op, 1), {}}, .n = 2, .residual = {}, .factors = factors};
  with_unit(*op.w[0], [&](auto unit) { run<decltype(unit)>(parts, kind == ActKind::silu ? GemmEnd::silu : GemmEnd::gelu_tanh, op.x, tiles, is_tiled, out_tiles, l); });
}

}  // namespace ridge::cuda
