// Matmul for several tokens (up to 32), too many for few_tokens.cu to keep their rows in shared memory (or to be fast with them: several_tokens_gain), too few for gemm.cu's blocks. What binds here is not the weights alone but the
// input that every multiprocessor has to fetch for the rows it multiplies: the second-level cache gives 6.5 TB/s to all of them together, and 32 rows a block (matmul.cu) mean
// 200 MB of input for gate and up of an 8B model beside 57 MB of nvfp4. So a block has 192 or 256 rows (several_wide.cu) or, of weights that have too few for that, a pair of blocks has 64 to 192, and each of them
// half of the inputs (several_pairs.cu). bf16, of which nothing is to be decoded, has both in several_bf16.cu.
//
// Unit u of the inputs belongs to chain u mod 8; chains are added up in order: the same arithmetic as for few and for many tokens. This file says which way a weight goes.
#include "cuda/kernels/matmul/several_tokens.h"

namespace ridge::cuda {
namespace {

using namespace several;

// How a weight's first row tiles are multiplied: by pairs of blocks that have rt times 64 rows or, where w is not 0, by blocks that have w times 64 alone.
struct Way {
  int rt, w, n_tiles;                        // n_tiles: of this launch; the others are the next one's
  int64_t cycles = INT64_MAX;                // of all
};

// The shortest, by the units that warps take one after the other. The input is fetched, and sums are added up, once for each place. Blocks that one round more than the others is for leave most multiprocessors idle, so
// that what whole rounds leave may go another way, in one round of a launch of its own (`rest`). tiles_apart: row tiles after which another launch can go on; 0: nowhere.
template <class Unit>
Way way_of(int n_tiles, int n_units, int tiles_apart, bool rest, const Launch& l) {
  // In cycles: of a scheduler, as measured in nvfp4, a unit 210 in a pair and 165 in a wide block; of bf16 as long as it takes to read. What is not units 3,000 and 2,500, and 4,000 between two launches.
  constexpr bool kIsBf16 = std::is_same_v<Unit, Bf16Unit>;
  constexpr int kInPair = kIsBf16 ? 422 : 210, kInWide = kIsBf16 ? 422 : 165, kNext = 4000;
  const int n_steps = (n_units + kChains - 1) / kChains;
  Way best{};
  const auto consider = [&](int rt, int w) {
    const int64_t round = w > 0 ? n_units * w * kInWide + 2500 : n_steps * rt * kOwnChains * kInPair + 3000;
    const int at_once = kGroups * (w > 0 ? l.n_sms * w : l.n_sms / kCluster * rt), n_whole = n_tiles / at_once, n_rest = n_tiles % at_once, n_rounds = n_whole + (n_rest > 0);
    const auto take = [&](int n_tiles, int64_t cycles) {
      if (cycles < best.cycles) best = {rt, w, n_tiles, cycles};
    };
    if (!rest || n_rounds == 1) take(n_tiles, n_rounds * round);
    if (rest || n_whole == 0 || n_rest == 0 || tiles_apart == 0 || n_whole * at_once % tiles_apart > 0) return;
    if (const Way next = way_of<Unit>(n_rest, n_units, 0, true, l); next.n_tiles > 0) take(n_whole * at_once, n_whole * round + kNext + next.cycles);
  };
  constexpr bool kMore = !kIsBf16 && Unit::kScales == 0;                       // these have kernels for more rows, too
  consider(0, 3);
  if (kMore) consider(0, 4);
  consider(1, 0), consider(2, 0);
  if (kMore) consider(3, 0);
  return best;
}

template <class Unit>
void by_rows(Several f, int n_groups, const Launch& l) {
  for (GemmPart& part : f.part) part.scale *= Unit::kFactor;
  const int of_both = f.activate ? 2 : 1;                                     // gate and up go together
  const int tiles_apart = f.n_parts > of_both ? 0 : of_both * (kUnit / kTileRows);      // whole units of what is activated
  for (bool rest = false;; rest = true) {
    f.n_tiles = 0;
    for (int i = 0; i < f.n_parts; ++i) {
      f.part[i].first_block = f.n_tiles;
      const int n = (f.part[i].rows + kTileRows - 1) / kTileRows;
      f.n_tiles = f.activate ? n : f.n_tiles + n;
    }
    const Way way = way_of<Unit>(of_both * f.n_tiles, f.n_units, tiles_apart, rest, l);
    Several now = f;
    now.n_tiles = way.n_tiles / of_both;
    const int n_rows = now.n_tiles * kTileRows;
    const bool more = now.n_tiles < f.n_tiles;
    if (more)
      for (int i = 0; i < f.n_parts; ++i) now.part[i].rows = n_rows;
    if (way.w > 0) wide<Unit>(now, way.w, n_groups, l);
    else pairs<Unit>(now, way.rt, n_groups, l);
    if (!more) return;
    for (int i = 0; i < f.n_parts; ++i) {
      GemmPart& part = f.part[i];
      part.rows -= n_rows, part.units += int64_t{now.n_tiles} * f.n_units * Unit::kBytes, part.out += n_rows;
      if (part.bias) part.bias += n_rows;
      if (part.row_scales) part.row_scales += n_rows;
    }
    if (f.out_lanes.data) f.out_lanes.data += f.out_lanes.bytes_of(n_rows);
    if (f.residual) f.residual += n_rows;
    f.next.first_col += n_rows;
  }
}

}  // namespace

bool takes_several_tokens(const Matmul& op, const Launch& l) {
  if (!kHasSm90a || l.compute_capability != 90 || op.x.rows < 1 || op.x.rows > kMostSeveral) return false;
  const Weight* first = nullptr;
  for (const Weight* w : op.w) {
    if (!w) continue;
    if (!first) first = w;
    if (w->arithmetic.x == FormatId::f32 || !same_unit(*w, *first)) return false;
  }
  return first != nullptr;
}

// Twelve layers of an 8B model, tokens/s of batches of 5, 6 and 7 as several and as few: nvfp4 7,209, 8,497 and 9,714 of 7,071, 7,841 and 8,325 (an earlier sitting); fp8 5,330 and 6,302 of 5,172 and 5,827; q8_0 5,238,
// 6,197 and 7,054 of 5,145, 6,063 and 6,718; q4_0 7,154, 8,520 and 9,818 of 7,195, 8,325 and 9,131; bf16 3,158, 3,767 and 4,326 of 3,153, 3,730 and 4,252.
bool several_tokens_gain(const Matmul& op, const Launch& l) {
  constexpr int kFrom = 6;
  return op.x.rows >= kFrom && takes_several_tokens(op, l);
}

Lanes lanes_for(const Matmul& op, std::byte* data) { return {data, op.x.rows <= 8 ? 1 : op.x.rows <= 16 ? 2 : 4, takes_halves(first_of(op)), true}; }

void matmul_several_tokens(const Matmul& op, const Around& around, const Launch& l) {
  Several f{};
  for (int i = 0; i < 3; ++i)
    if (op.w[i]) f.part[f.n_parts++] = part_from(op, i);
  f.n_units = (int(op.x.cols) + kUnit - 1) / kUnit;
  f.n_tokens = int(op.x.rows);
  f.x = around.x_lanes ? around.x_lanes : l.matmul_scratch;
  if (around.norm) f.norm = {{l.tile_squares, f.n_units * kUnit}, around.norm->eps};
  f.out_lanes = around.out_lanes;
  if (around.activate) {
    f.activate = true;
    f.act = around.activate->kind;
    f.part[0].out = around.activate->out.f32();
    f.part[0].out_stride = around.activate->out.stride / 4;
  }
  if (around.residual) {
    f.residual = around.residual->x.f32();
    f.residual_stride = around.residual->x.stride / 4;
    f.residual_scale = around.residual->pending_scale;
    if (around.next_lanes.data)
      f.next = {around.next_lanes, around.residual->weight.data ? around.residual->weight.f32() : nullptr, around.residual->weight_offset, {l.tile_squares, int(around.residual->x.cols)}, 0};
  }
  const Lanes lanes = lanes_for(op, l.matmul_scratch);
  if (!around.x_lanes) input_in_lanes(lanes, op.x, l);
  with_unit(first_of(op), [&](auto unit) { by_rows<decltype(unit)>(f, lanes.n_groups, l); });
}

}  // namespace ridge::cuda
