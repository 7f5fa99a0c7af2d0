// Paged causal attention with an online softmax, in f32.
//
// Positions are cut at absolute multiples: tiles of 64, and spans of 1024 (16 tiles). A span starts from an empty softmax state, and the spans of a query are
// merged in order; so several workers may share one long context, and a query's bits depend on neither the workers nor the batch nor the page size.
//
// A unit of work is up to four blocks of query rows of a sequence x the query heads of one KV head. A block is about 32 queries, what the first-level cache
// holds beside a strip of K or V; the blocks of a unit share a tile of K and V once it is converted. With fewer units than would keep the workers busy (decoding
// a few long sequences), a unit is cut into its spans, whose states meet in the shared scratch.
#include "backend/step.h"
#include "cpu/kernels/attention_tile.h"
#include "cpu/kernels/kernels.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kTile = 64, kSpan = 1024, kQueries = 32, kMostBlocks = 4;
constexpr int kFewQueries = 8;               // up to here K and V are read where they lie; beyond, a tile is converted once into scratch

inline int64_t round16(int64_t n) { return (n + 15) / 16 * 16; }
// Rows of the products. Many queries are filled up with zeros to whole register tiles, since what is left over would leave the FMA units waiting: with 30 of
// them (ten rows of three heads) a product took 40 cycles for every 32 it takes now.
inline int product_rows(int n_queries) { return n_queries <= kFewQueries ? n_queries : (n_queries + kProductRows - 1) / kProductRows * kProductRows; }
inline int min_of(int a, int b) { return a < b ? a : b; }
inline int max_of(int a, int b) { return a > b ? a : b; }

// The first position that a token at `position` sees.
inline int first_seen(const PagedAttention& op, int position) {
  const int by_window = op.window > 0 ? max_of(0, position - op.window + 1) : 0;
  return op.chunk > 0 ? max_of(by_window, position - position % op.chunk) : by_window;
}

struct Unit {
  const StepSeq* seq;
  int64_t first_row;
  int n_rows, kv_head;
  int first, last;                           // positions that any of its rows sees
};

// All units of the step, longest contexts first so that no long one is left for the end; a KV head's units are neighbours, so that after the first of them its
// keys and values come from the second-level cache. Walked forwards only.
class Units {
 public:
  Units(const PagedAttention& op, const Step& step, int32_t* order, int n_workers) : op_(op), step_(step), order_(order) {
    const int group = op.n_heads / op.n_kv_heads;
    rows_ = max_of(1, kQueries / group);
    const StepSeq* seqs = step.seqs().data();
    const int n = step.n_seqs();
    for (int i = 0; i < n; ++i) order[i] = i;
    for (const int gap : {301, 132, 57, 23, 10, 4, 1})
      for (int i = gap; i < n; ++i) {
        const int32_t s = order[i];
        int j = i;
        for (; j >= gap && seqs[order[j - gap]].n_context < seqs[s].n_context; j -= gap) order[j] = order[j - gap];
        order[j] = s;
      }
    for (int i = 0; i < n; ++i) longest_ = max_of(longest_, seqs[i].n_context);
    for (blocks_ = kMostBlocks;; blocks_ /= 2) {
      count_ = 0;
      for (int i = 0; i < n; ++i) count_ += units_of(seqs[i]);
      if (blocks_ == 1 || count_ >= 8 * n_workers) break;
    }
  }

  int64_t count() const { return count_; }
  int most_spans() const { return (longest_ + kSpan - 1) / kSpan; }
  int block_rows() const { return rows_; }
  int most_blocks() const { return blocks_; }

  Unit at(int64_t index) {
    const StepSeq* seqs = step_.seqs().data();
    while (index - base_ >= units_of(seqs[order_[next_]])) base_ += units_of(seqs[order_[next_++]]);
    const StepSeq& seq = seqs[order_[next_]];
    const int64_t local = index - base_, n = units_of(seq) / op_.n_kv_heads, most = int64_t{rows_} * blocks_, row = (n - 1 - local % n) * most;
    Unit unit{.seq = &seq, .first_row = seq.first_row + row, .n_rows = static_cast<int>(seq.n_rows - row < most ? seq.n_rows - row : most),
              .kv_head = static_cast<int>(local / n), .first = INT32_MAX, .last = 0};
    for (int r = 0; r < unit.n_rows; ++r) {
      const int position = step_.positions().data()[unit.first_row + r];
      unit.first = min_of(unit.first, first_seen(op_, position));
      unit.last = max_of(unit.last, position + 1);
    }
    return unit;
  }

 private:
  int64_t units_of(const StepSeq& seq) const { return (seq.n_rows + rows_ * blocks_ - 1) / (rows_ * blocks_) * op_.n_kv_heads; }

  const PagedAttention& op_;
  const Step& step_;
  int32_t* order_;
  int rows_ = 1, blocks_ = 1, longest_ = 0;
  int64_t count_ = 0;
  int64_t base_ = 0;
  int next_ = 0;
};

// Softmax states of M queries, and what a tile brings: arrays [M], with room for a multiple of 16.
struct States {
  float *largest, *sum;
  SoftmaxState at(int64_t m) const { return {largest[m], sum[m]}; }
  void set(int64_t m, const SoftmaxState& state) const { largest[m] = state.largest, sum[m] = state.sum; }
};

// A worker's scratch. Query m of a block is row m / group, head m % group of the KV head's group; a block has room for M of them, a multiple of 16.
struct Scratch {
  int m;                                     // M
  float *q, *s, *o, *total, *k, *v;          // [blocks][M][head_dim], [M][64], [blocks][M][v16] twice, and strips: [64 / 16][head_dim][16], [v16 / 16][64][16]
  States state, total_state, tile;           // [blocks][M], [blocks][M], [M]
  float* factor;                             // [M]

  static int64_t n_bytes(const PagedAttention& op, int64_t n_queries, int64_t n_blocks) {
    const int64_t v16 = round16(op.v_dim);
    return 4 * (round16(n_queries) * (n_blocks * (op.head_dim + 2 * v16 + 4) + kTile + 3) + kTile * (op.head_dim + v16));
  }
  Scratch(const PagedAttention& op, int64_t n_queries, int64_t n_blocks, std::byte* memory) : m(static_cast<int>(round16(n_queries))) {
    const int64_t v16 = round16(op.v_dim);
    auto* p = reinterpret_cast<float*>(memory);
    const auto take = [&p](int64_t n) { return (p += n) - n; };
    k = take(kTile * op.head_dim);
    v = take(kTile * v16);
    s = take(m * kTile);
    o = take(n_blocks * m * v16);
    total = take(n_blocks * m * v16);
    q = take(n_blocks * m * op.head_dim);
    for (States* states : {&state, &total_state}) *states = {take(n_blocks * m), take(n_blocks * m)};
    tile = {take(m), take(m)};
    factor = take(m);
  }
};

class Attention {
 public:
  Attention(const PagedAttention& op, const Step& step, const Scratch& scratch, int block_rows)
      : op_(op), step_(step), at_(scratch), group_(op.n_heads / op.n_kv_heads), block_rows_(block_rows), v16_(round16(op.v_dim)) {}

  void load_queries(const Unit& unit) {
    for_blocks(unit, [&](const Block& block) {
      float* out = at_.q + block.slot * op_.head_dim;
      for (int m = 0; m < block.n_queries; ++m) {
        const float* q = op_.q.f32(block.first_row + m / group_) + (int64_t{unit.kv_head} * group_ + m % group_) * op_.head_dim;
        for (int d = 0; d < op_.head_dim; ++d) out[m * op_.head_dim + d] = q[d];
      }
      for (int i = block.n_queries * op_.head_dim; i < product_rows(block.n_queries) * op_.head_dim; ++i) out[i] = 0.0f;
    });
  }

  // The softmax states and sums of one span, from nothing, in at_.state and at_.o.
  void span(const Unit& unit, int index) {
    clear(unit, at_.state, at_.o);
    const int first = max_of(unit.first, index * kSpan), last = min_of(unit.last, (index + 1) * kSpan);
    for (int base = first / kTile * kTile; base < last; base += kTile) tile(unit, base, max_of(first, base) - base, min_of(last - base, kTile));
  }

  void clear(const Unit& unit, const States& state, float* o) const {
    for_blocks(unit, [&](const Block& block) {
      for (int m = 0; m < at_.m; ++m) state.set(block.slot + m, {-__builtin_inff(), 0.0f});
      for (int64_t i = 0; i < product_rows(block.n_queries) * v16_; i += 16) store(o + block.slot * v16_ + i, zero());
    });
  }

  // fn(slot, row, head in the group) for every query of a unit; slot: its place in the arrays of the scratch.
  template <class Fn>
  void for_queries(const Unit& unit, Fn&& fn) const {
    for_blocks(unit, [&](const Block& block) {
      for (int m = 0; m < block.n_queries; ++m) fn(block.slot + m, block.first_row + m / group_, m % group_);
    });
  }

  void finish(const Unit& unit, const States& states, const float* o) const {
    for_queries(unit, [&](int64_t slot, int64_t row, int of_group) {
      const int head = unit.kv_head * group_ + of_group;
      const SoftmaxState state = states.at(slot);
      const float sum = state.sum + (op_.sinks ? exp1(op_.sinks.f32()[head] - state.largest) : 0.0f);
      float* out = op_.out.f32(row) + int64_t{head} * op_.v_dim;
      for_lanes(0, op_.v_dim, [&](int64_t i, int n) { store_n(out + i, div(load_n(o + slot * v16_ + i, n), set1(sum)), n); });
    });
  }

 private:
  struct Block {
    int64_t slot, first_row;                 // slot: of its first query
    int n_rows, n_queries;
  };
  template <class Fn>
  void for_blocks(const Unit& unit, Fn&& fn) const {
    int64_t slot = 0;
    for (int row = 0; row < unit.n_rows; row += block_rows_, slot += at_.m) {
      const int n = min_of(block_rows_, unit.n_rows - row);
      fn(Block{slot, unit.first_row + row, n, n * group_});
    }
  }

  const std::byte* plane_of(const Unit& unit, int plane, int position) const {
    return op_.kv.plane(plane, step_.pages()[unit.seq->first_page[op_.kv.group] + position / op_.kv.page_size]);
  }
  template <class Kv>
  const typename Kv::Bits* k_of(const Unit& unit, int position) const {
    return reinterpret_cast<const typename Kv::Bits*>(plane_of(unit, 0, position)) + int64_t{unit.kv_head} * op_.head_dim * op_.kv.page_size +
           position % op_.kv.page_size;
  }
  template <class Kv>
  const typename Kv::Bits* v_of(const Unit& unit, int position) const {
    return reinterpret_cast<const typename Kv::Bits*>(plane_of(unit, 1, position)) +
           (int64_t{unit.kv_head} * op_.kv.page_size + position % op_.kv.page_size) * op_.v_dim;
  }

  // Where what belongs to a position lies in the next tile, if that is asked for ahead; null if not.
  template <class Of>
  const std::byte* next_tile(const Unit& unit, int position, Of&& of) const {
    return kAsksAhead && position + kTile < unit.last ? reinterpret_cast<const std::byte*>(of(position + kTile)) : nullptr;
  }

  // fn(first, last) for the parts of positions [first, last) of a tile that lie in one page; `grain` 16 widens them to whole vectors of positions.
  template <class Fn>
  void for_pages(int first, int last, int grain, Fn&& fn) const {
    const int page = op_.kv.page_size;
    for (int i = first / grain * grain; i < last;) {
      const int end = min_of((i / page + 1) * page, (last + grain - 1) / grain * grain);
      fn(i, end);
      i = end;
    }
  }

  struct Range { int first, last; };

  // What of positions [first, last) of the tile at `base` a row sees; last <= first: nothing.
  Range seen_by(int64_t row, int base, int first, int last) const {
    const int position = step_.positions().data()[row];
    return {max_of(first, first_seen(op_, position) - base), min_of(last, position + 1 - base)};
  }

  void tile(const Unit& unit, int base, int first, int last) {
    const bool few = unit.n_rows * group_ <= kFewQueries;
    if (!few) with_kv_format(op_.kv.planes[0].format, [&](auto kv) { convert_keys<decltype(kv)>(unit, base, first, last); });
    if (!few || op_.v_dim % 16 != 0) with_kv_format(op_.kv.planes[1].format, [&](auto kv) { convert_values<decltype(kv)>(unit, base, first, last); });
    for_blocks(unit, [&](const Block& block) {
      Range all{last, first};
      for (int r = 0; r < block.n_rows; ++r) {
        const Range seen = seen_by(block.first_row + r, base, first, last);
        if (seen.first < seen.last) all = {min_of(all.first, seen.first), max_of(all.last, seen.last)};
      }
      if (all.first < all.last) block_tile(unit, block, base, all.first, all.last, few);      // else as if the tile were not there
    });
  }

  void block_tile(const Unit& unit, const Block& block, int base, int first, int last, bool few) {
    with_kv_format(op_.kv.planes[0].format, [&](auto kv) { scores<decltype(kv)>(unit, block, base, first, last, few); });
    const States state{at_.state.largest + block.slot, at_.state.sum + block.slot};
    for (int m = 0; m < block.n_queries; ++m) {
      const Range seen = seen_by(block.first_row + m / group_, base, first, last);
      at_.tile.largest[m] = seen.first < seen.last ? scale_tile(at_.s + m * kTile, seen.first, seen.last, op_.scale, op_.softcap) : -__builtin_inff();
    }
    for (int m = 0; m < block.n_queries; m += 16) add_largest(at_.factor + m, state.largest + m, at_.tile.largest + m);
    for (int m = 0; m < block.n_queries; ++m) {
      const Range seen = seen_by(block.first_row + m / group_, base, first, last);
      float *s = at_.s + m * kTile, *o = at_.o + (block.slot + m) * v16_;
      if (seen.first < seen.last) {
        at_.tile.sum[m] = weigh_tile(s, state.largest[m]);
      } else {                               // as if the tile were not there
        at_.tile.sum[m] = 0;
        for (int i = 0; i < kTile; i += 16) store(s + i, zero());
      }
      if (at_.factor[m] == 1.0f) continue;
      for (int64_t i = 0; i < v16_; i += 16) store(o + i, mul(load(o + i), set1(at_.factor[m])));
    }
    for (int m = 0; m < block.n_queries; m += 16) add_sums(state.sum + m, at_.factor + m, at_.tile.sum + m);
    with_kv_format(op_.kv.planes[1].format, [&](auto kv) { values<decltype(kv)>(unit, block, base, first, last, few); });
  }

  template <class Kv>
  void convert_keys(const Unit& unit, int base, int first, int last) const {
    const int page = op_.kv.page_size;
    for_pages(first, last, 16, [&](int i, int end) {
      const auto* k = k_of<Kv>(unit, base + i);
      for (int d = 0; d < op_.head_dim; ++d)
        for (int j = i; j < end; j += 16) store(at_.k + int64_t{j} * op_.head_dim + d * 16, Kv::load16(k + int64_t{d} * page + j - i));
    });
  }

  template <class Kv>
  void convert_values(const Unit& unit, int base, int first, int last) const {
    for_pages(first, last, 1, [&](int i, int end) {
      const auto* v = v_of<Kv>(unit, base + i);
      for (int j = i; j < end; ++j, v += op_.v_dim) {
        int d = 0;
        for (; d + 16 <= op_.v_dim; d += 16) store(at_.v + d * kTile + j * 16, Kv::load16(v + d));
        if (d == op_.v_dim) continue;
        typename Kv::Bits tail[16] = {};
        for (int e = d; e < op_.v_dim; ++e) tail[e - d] = v[e];
        store(at_.v + d * kTile + j * 16, Kv::load16(tail));
      }
    });
  }

  template <class Kv>
  void scores(const Unit& unit, const Block& block, int base, int first, int last, bool few) {
    const float* q = at_.q + block.slot * op_.head_dim;
    if (few) {
      for_pages(first, last, 16, [&](int i, int end) {
        const auto of = [&](int position) { return k_of<Kv>(unit, position); };
        Product<Kv>{at_.s + i, kTile, q, op_.head_dim, of(base + i), op_.kv.page_size, 16, op_.head_dim, false, next_tile(unit, base + i, of)}.run(block.n_queries, (end - i) / 16);
      });
      return;
    }
    const int begin = first / 16 * 16, n_strips = (last - begin + 15) / 16;
    const float* strips = at_.k + int64_t{begin} * op_.head_dim;
    Product<KvF32>{at_.s + begin, kTile, q, op_.head_dim, strips, 16, 16 * int64_t{op_.head_dim}, op_.head_dim, false}.run(product_rows(block.n_queries), n_strips);
  }

  template <class Kv>
  void values(const Unit& unit, const Block& block, int base, int first, int last, bool few) {
    float* o = at_.o + block.slot * v16_;
    if (few && op_.v_dim % 16 == 0) {
      for_pages(first, last, 1, [&](int i, int end) {
        const auto of = [&](int position) { return v_of<Kv>(unit, position); };
        Product<Kv>{o, v16_, at_.s + i, kTile, of(base + i), op_.v_dim, 16, end - i, true, next_tile(unit, base + i, of)}.run(block.n_queries, op_.v_dim / 16);
      });
      return;
    }
    Product<KvF32>{o, v16_, at_.s + first, kTile, at_.v + first * 16, 16, 16 * kTile, last - first, true}.run(product_rows(block.n_queries), static_cast<int>(v16_ / 16));
  }

  const PagedAttention& op_;
  const Step& step_;
  const Scratch at_;
  const int group_, block_rows_;
  const int64_t v16_;
};

}  // namespace

void paged_attention(const PagedAttention& op, Lane& lane) {
  const Step& step = *lane.step;
  auto* order = reinterpret_cast<int32_t*>(lane.own.data());
  const int64_t order_bytes = (4 * int64_t{step.n_seqs()} + 63) / 64 * 64, v16 = round16(op.v_dim);
  Units units(op, step, order, lane.n_workers);
  const int n_spans = units.most_spans();
  const Scratch scratch(op, int64_t{units.block_rows()} * (op.n_heads / op.n_kv_heads), units.most_blocks(), lane.own.data() + order_bytes);
  Attention attention(op, step, scratch, units.block_rows());
  // Adds a span's outcome for the query at `slot` to what its unit has so far.
  const auto add = [&](int64_t slot, const SoftmaxState& state, const float* o) {
    scratch.total_state.set(slot, merge(scratch.total_state.at(slot), scratch.total + slot * v16, state, o, v16));
  };

  const int64_t n_most = int64_t{scratch.m} * units.most_blocks(), outcome = n_most * (v16 + 16);      // numbers of a span's outcome: states (16 apart), then sums
  const bool cut = lane.n_workers > 1 && n_spans > 1 && units.count() < 4 * lane.n_workers &&
                   units.count() * n_spans * outcome * 4 <= static_cast<int64_t>(lane.shared.size());
  if (!cut) {
    lane.share(units.count(), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const Unit unit = units.at(i);
        attention.load_queries(unit);
        attention.clear(unit, scratch.total_state, scratch.total);
        for (int s = unit.first / kSpan; s * kSpan < unit.last; ++s) {
          attention.span(unit, s);
          attention.for_queries(unit, [&](int64_t slot, int64_t, int) { add(slot, scratch.state.at(slot), scratch.o + slot * v16); });
        }
        attention.finish(unit, scratch.total_state, scratch.total);
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
      attention.for_queries(unit, [&](int64_t slot, int64_t, int) {
        out[slot * 16] = scratch.state.largest[slot];
        out[slot * 16 + 1] = scratch.state.sum[slot];
        for (int64_t j = 0; j < v16; j += 16) store(out + n_most * 16 + slot * v16 + j, load(scratch.o + slot * v16 + j));
      });
    }
  });
  lane.barrier();
  Units again(op, step, order, lane.n_workers);
  const auto [first, last] = lane.part(units.count());
  for (int64_t i = first; i < last; ++i) {
    const Unit unit = again.at(i);
    attention.clear(unit, scratch.total_state, scratch.total);
    for (int s = unit.first / kSpan; s * kSpan < unit.last; ++s) {
      const float* in = outcomes + (i * n_spans + s) * outcome;
      attention.for_queries(unit, [&](int64_t slot, int64_t, int) { add(slot, {in[slot * 16], in[slot * 16 + 1]}, in + n_most * 16 + slot * v16); });
    }
    attention.finish(unit, scratch.total_state, scratch.total);
  }
}

bool fits_attention(const PagedAttention& op) {
  const int64_t group = op.n_heads / op.n_kv_heads, n_queries = group > kQueries ? group : kQueries;
  return op.n_heads % op.n_kv_heads == 0 && Scratch::n_bytes(op, n_queries, kMostBlocks) <= int64_t{6} << 20;      // of the 8 MiB that every worker has
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
