// What attention does whatever the arithmetic of its tiles: blocks of queries, what each of them sees of a tile, the online softmax over tiles and spans, and
// the workers' shares. `Tiles` has the two products, the scores and the weights:
//
//   kTile, kQueries                                   positions of a tile, a divisor of a span's; queries of a block
//   static int64_t width(op)                          numbers of a query's row of sums: v_dim and what fills it up
//   static int64_t n_bytes(op, m, n_blocks)           of its scratch, for blocks of m queries (a multiple of 16)
//   Tiles(frame, n_blocks, memory)
//   load_queries(unit, block)                         the queries of a block
//   convert(unit, base, first, last)                  positions [first, last) of the tile at `base`, for all blocks of a unit
//   scores(unit, block, base, first, last)            of a block's queries, with positions [first, last)
//   scale(m, seen, all)                               scores of query m outside what it sees of all that were computed are gone; the largest of the others, scaled
//   weigh(m, largest, all), forget(m)                 scores become weights, and their sum; all weights are zero
//   values(unit, block, base, first, last)            adds weights x values to the block's sums
//   put(out, sums, sum)                               the v_dim numbers of a query's output
#pragma once
#include "cpu/kernels/attention_tile.h"
#include "cpu/kernels/attention_units.h"
#include "cpu/lane.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

// Softmax states of M queries, and what a tile brings: arrays [M], with room for a multiple of 16.
struct States {
  float *largest, *sum;
  SoftmaxState at(int64_t m) const { return {largest[m], sum[m]}; }
  void set(int64_t m, const SoftmaxState& state) const { largest[m] = state.largest, sum[m] = state.sum; }
};

struct Block {
  int64_t slot, first_row;                   // slot: of its first query in the arrays of all blocks
  int n_rows, n_queries;
};
struct Range { int first, last; };

// What an op's tiles are made from, and a worker's scratch. Query m of a block is row m / group, head m % group of the KV head's group; a block has room for M.
struct Frame {
  const PagedAttention& op;
  const Step& step;
  int group, block_rows, m;                  // m: M, a multiple of 16
  int64_t width;
  float *o, *total;                          // [blocks][M][width]
  States state, total_state, tile;           // [blocks][M], [blocks][M], [M]
  float* factor;                             // [M]

  static int64_t n_bytes(int64_t m, int64_t n_blocks, int64_t width) { return 4 * m * (n_blocks * (2 * width + 4) + 3); }
  Frame(const PagedAttention& attention, const Step& s, int n_rows, int64_t n_blocks, int64_t row_width, std::byte* memory)
      : op(attention), step(s), group(op.n_heads / op.n_kv_heads), block_rows(n_rows), m(static_cast<int>(round16(n_rows * group))), width(row_width) {
    auto* p = reinterpret_cast<float*>(memory);
    const auto take = [&p](int64_t n) { return (p += n) - n; };
    o = take(n_blocks * m * width);
    total = take(n_blocks * m * width);
    for (States* states : {&state, &total_state}) *states = {take(n_blocks * m), take(n_blocks * m)};
    tile = {take(m), take(m)};
    factor = take(m);
  }

  template <class Fn>
  void for_blocks(const Unit& unit, Fn&& fn) const {
    int64_t slot = 0;
    for (int row = 0; row < unit.n_rows; row += block_rows, slot += m) {
      const int n = min_of(block_rows, unit.n_rows - row);
      fn(Block{slot, unit.first_row + row, n, n * group});
    }
  }
  // fn(slot, row, head in the group) for every query of a unit; slot: its place in the arrays of the scratch.
  template <class Fn>
  void for_queries(const Unit& unit, Fn&& fn) const {
    for_blocks(unit, [&](const Block& block) {
      for (int i = 0; i < block.n_queries; ++i) fn(block.slot + i, block.first_row + i / group, i % group);
    });
  }
  const float* query(const Unit& unit, const Block& block, int i) const {
    return op.q.f32(block.first_row + i / group) + (int64_t{unit.kv_head} * group + i % group) * op.head_dim;
  }

  const std::byte* plane_of(const Unit& unit, int plane, int position) const {
    return op.kv.plane(plane, step.pages()[unit.seq->first_page[op.kv.group] + position / op.kv.page_size]);
  }
  template <class Kv>
  const typename Kv::Bits* k_of(const Unit& unit, int position) const {
    return reinterpret_cast<const typename Kv::Bits*>(plane_of(unit, 0, position)) + int64_t{unit.kv_head} * op.head_dim * op.kv.page_size + position % op.kv.page_size;
  }
  const float* scales_of(const Unit& unit, int plane, int position) const {        // fp8_e4m3
    const int32_t page = step.pages()[unit.seq->first_page[op.kv.group] + position / op.kv.page_size];
    return reinterpret_cast<const float*>(op.kv.scales(plane, page)) + int64_t{unit.kv_head} * op.kv.page_size + position % op.kv.page_size;
  }
  template <class Kv>
  const typename Kv::Bits* v_of(const Unit& unit, int position) const {
    return reinterpret_cast<const typename Kv::Bits*>(plane_of(unit, 1, position)) +
           (int64_t{unit.kv_head} * op.kv.page_size + position % op.kv.page_size) * op.v_dim;
  }
  // fn(first, last) for the parts of positions [first, last) of a tile that lie in one page; `grain` 16 widens them to whole vectors of positions.
  template <class Fn>
  void for_pages(int first, int last, int grain, Fn&& fn) const {
    const int page = op.kv.page_size;
    for (int i = first / grain * grain; i < last;) {
      const int end = min_of((i / page + 1) * page, (last + grain - 1) / grain * grain);
      fn(i, end);
      i = end;
    }
  }

  // What of positions [first, last) of the tile at `base` a row sees; last <= first: nothing.
  Range seen_by(int64_t row, int base, int first, int last) const {
    const int position = step.positions().data()[row];
    return {max_of(first, first_seen(op, position) - base), min_of(last, position + 1 - base)};
  }
};

template <class Tiles>
class Attention {
 public:
  static int64_t n_bytes(const PagedAttention& op, int64_t n_queries, int64_t n_blocks) {
    return Frame::n_bytes(round16(n_queries), n_blocks, Tiles::width(op)) + Tiles::n_bytes(op, round16(n_queries), n_blocks);
  }
  Attention(const PagedAttention& op, const Step& step, int block_rows, int64_t n_blocks, std::byte* memory)
      : at(op, step, block_rows, n_blocks, Tiles::width(op), memory + Tiles::n_bytes(op, round16(block_rows * (op.n_heads / op.n_kv_heads)), n_blocks)),
        tiles_(at, n_blocks, memory) {}

  const Frame at;

  void load_queries(const Unit& unit) const {
    at.for_blocks(unit, [&](const Block& block) { tiles_.load_queries(unit, block); });
  }

  // The softmax states and sums of one span, from nothing, in at.state and at.o.
  void span(const Unit& unit, int index) const {
    clear(unit, at.state, at.o);
    const int first = max_of(unit.first, index * kSpan), last = min_of(unit.last, (index + 1) * kSpan);
    for (int base = first / Tiles::kTile * Tiles::kTile; base < last; base += Tiles::kTile)
      tile(unit, base, max_of(first, base) - base, min_of(last - base, Tiles::kTile));
  }

  void clear(const Unit& unit, const States& state, float* o) const {
    at.for_blocks(unit, [&](const Block& block) {
      for (int m = 0; m < at.m; ++m) state.set(block.slot + m, {-__builtin_inff(), 0.0f});
      for (int64_t i = 0; i < round16(block.n_queries) * at.width; i += 16) store(o + block.slot * at.width + i, zero());
    });
  }

  void finish(const Unit& unit, const States& states, const float* o) const {
    at.for_queries(unit, [&](int64_t slot, int64_t row, int of_group) {
      const int head = unit.kv_head * at.group + of_group;
      const SoftmaxState state = states.at(slot);
      const float sum = state.sum + (at.op.sinks ? exp1(at.op.sinks.f32()[head] - state.largest) : 0.0f);
      tiles_.put(at.op.out.f32(row) + int64_t{head} * at.op.v_dim, o + slot * at.width, sum);
    });
  }

 private:
  void tile(const Unit& unit, int base, int first, int last) const {
    tiles_.convert(unit, base, first, last);
    at.for_blocks(unit, [&](const Block& block) {
      Range all{last, first};
      for (int r = 0; r < block.n_rows; ++r) {
        const Range seen = at.seen_by(block.first_row + r, base, first, last);
        if (seen.first < seen.last) all = {min_of(all.first, seen.first), max_of(all.last, seen.last)};
      }
      if (all.first < all.last) block_tile(unit, block, base, all.first, all.last);            // else as if the tile were not there
    });
  }

  void block_tile(const Unit& unit, const Block& block, int base, int first, int last) const {
    tiles_.scores(unit, block, base, first, last);
    const States state{at.state.largest + block.slot, at.state.sum + block.slot};
    for (int m = 0; m < block.n_queries; ++m) {
      const Range seen = at.seen_by(block.first_row + m / at.group, base, first, last);
      at.tile.largest[m] = seen.first < seen.last ? tiles_.scale(m, seen, {first, last}) : -__builtin_inff();
    }
    for (int m = 0; m < block.n_queries; m += 16) add_largest(at.factor + m, state.largest + m, at.tile.largest + m);
    for (int m = 0; m < block.n_queries; ++m) {
      const Range seen = at.seen_by(block.first_row + m / at.group, base, first, last);
      if (seen.first < seen.last) {
        at.tile.sum[m] = tiles_.weigh(m, state.largest[m], {first, last});
      } else {                               // as if the tile were not there
        at.tile.sum[m] = 0;
        tiles_.forget(m);
      }
      if (at.factor[m] == 1.0f) continue;
      float* o = at.o + (block.slot + m) * at.width;
      for (int64_t i = 0; i < at.width; i += 16) store(o + i, mul(load(o + i), set1(at.factor[m])));
    }
    for (int m = 0; m < block.n_queries; m += 16) add_sums(state.sum + m, at.factor + m, at.tile.sum + m);
    tiles_.values(unit, block, base, first, last);
  }

  const Tiles tiles_;
};

template <class Tiles>
void attend(const PagedAttention& op, Lane& lane) {
  const Step& step = *lane.step;
  auto* order = reinterpret_cast<int32_t*>(lane.own.data());
  const int64_t order_bytes = (4 * int64_t{step.n_seqs()} + 63) / 64 * 64, width = Tiles::width(op);
  Units units(op, step, Tiles::kQueries, order, lane.n_workers);
  const int n_spans = units.most_spans();
  const Attention<Tiles> attention(op, step, units.block_rows(), units.most_blocks(), lane.own.data() + order_bytes);
  const Frame& at = attention.at;
  // Adds a span's outcome for the query at `slot` to what its unit has so far.
  const auto add = [&](int64_t slot, const SoftmaxState& state, const float* o) {
    at.total_state.set(slot, merge(at.total_state.at(slot), at.total + slot * width, state, o, width));
  };

  const int64_t n_most = int64_t{at.m} * units.most_blocks(), outcome = n_most * (width + 16);      // numbers of a span's outcome: states (16 apart), then sums
  const bool cut = lane.n_workers > 1 && n_spans > 1 && units.count() < 4 * lane.n_workers &&
                   units.count() * n_spans * outcome * 4 <= static_cast<int64_t>(lane.shared.size());
  if (!cut) {
    lane.share(units.count(), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const Unit unit = units.at(i);
        attention.load_queries(unit);
        attention.clear(unit, at.total_state, at.total);
        for (int s = unit.first / kSpan; s * kSpan < unit.last; ++s) {
          attention.span(unit, s);
          at.for_queries(unit, [&](int64_t slot, int64_t, int) { add(slot, at.state.at(slot), at.o + slot * width); });
        }
        attention.finish(unit, at.total_state, at.total);
      }
    });
    return;
  }

  auto* outcomes = reinterpret_cast<float*>(lane.shared.data());
  lane.share(units.count() * n_spans, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const Unit unit = units.at(i / n_spans);
      const int s = static_cast<int>(i % n_spans);
      if ((s + 1) * kSpan <= unit.first || s * kSpan >= unit.last) continue;
      attention.load_queries(unit);
      attention.span(unit, s);
      float* out = outcomes + i * outcome;
      at.for_queries(unit, [&](int64_t slot, int64_t, int) {
        out[slot * 16] = at.state.largest[slot];
        out[slot * 16 + 1] = at.state.sum[slot];
        for (int64_t j = 0; j < width; j += 16) store(out + n_most * 16 + slot * width + j, load(at.o + slot * width + j));
      });
    }
  });
  lane.barrier();
  Units again(op, step, Tiles::kQueries, order, lane.n_workers);
  const auto [first, last] = lane.part(units.count());
  for (int64_t i = first; i < last; ++i) {
    const Unit unit = again.at(i);
    attention.clear(unit, at.total_state, at.total);
    for (int s = unit.first / kSpan; s * kSpan < unit.last; ++s) {
      const float* in = outcomes + (i * n_spans + s) * outcome;
      at.for_queries(unit, [&](int64_t slot, int64_t, int) { add(slot, {in[slot * 16], in[slot * 16 + 1]}, in + n_most * 16 + slot * width); });
    }
    attention.finish(unit, at.total_state, at.total);
  }
}

template <class Tiles>
bool fits(const PagedAttention& op) {
  const int64_t group = op.n_heads / op.n_kv_heads, n_queries = group > Tiles::kQueries ? group : Tiles::kQueries;
  return op.n_heads % op.n_kv_heads == 0 && Attention<Tiles>::n_bytes(op, n_queries, kMostBlocks) <= int64_t{6} << 20;      // of the 8 MiB that every worker has
}

}  // namespace
}  // namespace ridge::cpu::RIDGE_ISA_NS
