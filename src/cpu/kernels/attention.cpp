// Paged causal attention with an online softmax, in f32.
//
// Positions are cut at absolute multiples: tiles of 64, and spans of 1024 (16 tiles). A span starts from an empty softmax state, and the spans of a query are
// merged in order; so several workers may share one long context, and a query's bits depend on neither the workers nor the batch nor the page size.
//
// A unit of work is a block of query rows of a sequence x the query heads of one KV head: about 32 queries that share every load of K and V. With fewer units
// than would keep the workers busy (decoding a few long sequences), a unit is cut into its spans, whose states meet in the shared scratch.
#include "backend/step.h"
#include "cpu/kernels/attention_tile.h"
#include "cpu/kernels/kernels.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kTile = 64, kSpan = 1024, kQueries = 32;
constexpr int kFewQueries = 8;               // up to here K and V are read where they lie; beyond, a tile is converted once into scratch

inline int64_t round16(int64_t n) { return (n + 15) / 16 * 16; }
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

// All units of the step, longest contexts first so that no long one is left for the end. Walked forwards only.
class Units {
 public:
  Units(const PagedAttention& op, const Step& step, int32_t* order) : op_(op), step_(step), order_(order) {
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
    for (int i = 0; i < n; ++i) {
      count_ += units_of(seqs[i]);
      longest_ = max_of(longest_, seqs[i].n_context);
    }
  }

  int64_t count() const { return count_; }
  int most_spans() const { return (longest_ + kSpan - 1) / kSpan; }
  int most_queries() const { return rows_ * (op_.n_heads / op_.n_kv_heads); }

  Unit at(int64_t index) {
    const StepSeq* seqs = step_.seqs().data();
    while (index - base_ >= units_of(seqs[order_[next_]])) base_ += units_of(seqs[order_[next_++]]);
    const StepSeq& seq = seqs[order_[next_]];
    const int64_t local = index - base_, block = blocks_of(seq) - 1 - local / op_.n_kv_heads;
    const int64_t row = block * rows_;
    Unit unit{.seq = &seq, .first_row = seq.first_row + row, .n_rows = static_cast<int>(seq.n_rows - row < rows_ ? seq.n_rows - row : rows_),
              .kv_head = static_cast<int>(local % op_.n_kv_heads), .first = INT32_MAX, .last = 0};
    for (int r = 0; r < unit.n_rows; ++r) {
      const int position = step_.positions().data()[unit.first_row + r];
      unit.first = min_of(unit.first, first_seen(op_, position));
      unit.last = max_of(unit.last, position + 1);
    }
    return unit;
  }

 private:
  int64_t blocks_of(const StepSeq& seq) const { return (seq.n_rows + rows_ - 1) / rows_; }
  int64_t units_of(const StepSeq& seq) const { return blocks_of(seq) * op_.n_kv_heads; }

  const PagedAttention& op_;
  const Step& step_;
  int32_t* order_;
  int rows_ = 1, longest_ = 0;
  int64_t count_ = 0;
  int64_t base_ = 0;
  int next_ = 0;
};

// Softmax states of M queries, and what a tile brings: arrays [M], with room for a multiple of 16.
struct States {
  float *largest, *sum;
  SoftmaxState at(int m) const { return {largest[m], sum[m]}; }
  void set(int m, const SoftmaxState& state) const { largest[m] = state.largest, sum[m] = state.sum; }
};

// A worker's scratch, for the queries m of a unit: row m / group, head m % group of the KV head's group.
struct Scratch {
  float *q, *s, *o, *total, *k, *v;          // [M][head_dim], [M][64], [M][v16], [M][v16], and strips: [64 / 16][head_dim][16], [v16 / 16][64][16]
  States state, total_state, tile;
  float* factor;                             // [M]

  static int64_t n_bytes(const PagedAttention& op, int64_t n_queries) {
    const int64_t v16 = round16(op.v_dim);
    return 4 * (n_queries * (round16(op.head_dim) + kTile + 2 * v16) + 7 * round16(n_queries) + kTile * (op.head_dim + v16));
  }
  Scratch(const PagedAttention& op, int64_t n_queries, std::byte* memory) {
    const int64_t v16 = round16(op.v_dim);
    auto* p = reinterpret_cast<float*>(memory);
    const auto take = [&p](int64_t n) { return (p += n) - n; };
    k = take(kTile * op.head_dim);
    v = take(kTile * v16);
    s = take(n_queries * kTile);
    o = take(n_queries * v16);
    total = take(n_queries * v16);
    q = take(n_queries * round16(op.head_dim));
    for (States* states : {&state, &total_state, &tile}) *states = {take(round16(n_queries)), take(round16(n_queries))};
    factor = take(round16(n_queries));
  }
};

class Attention {
 public:
  Attention(const PagedAttention& op, const Step& step, const Scratch& scratch)
      : op_(op), step_(step), at_(scratch), group_(op.n_heads / op.n_kv_heads), v16_(round16(op.v_dim)) {}

  void load_queries(const Unit& unit) {
    for (int m = 0; m < unit.n_rows * group_; ++m) {
      const float* q = op_.q.f32(unit.first_row + m / group_) + (int64_t{unit.kv_head} * group_ + m % group_) * op_.head_dim;
      for (int d = 0; d < op_.head_dim; ++d) at_.q[m * op_.head_dim + d] = q[d];
    }
  }

  // The softmax states and sums of one span, from nothing, in at_.state and at_.o.
  void span(const Unit& unit, int index) {
    const int n_queries = unit.n_rows * group_;
    clear(at_.state, at_.o, n_queries);
    const int first = max_of(unit.first, index * kSpan), last = min_of(unit.last, (index + 1) * kSpan);
    for (int base = first / kTile * kTile; base < last; base += kTile) tile(unit, n_queries, base, max_of(first, base) - base, min_of(last - base, kTile));
  }

  void clear(const States& state, float* o, int n_queries) const {
    for (int m = 0; m < round16(n_queries); ++m) state.set(m, {-__builtin_inff(), 0.0f});
    for (int64_t i = 0; i < n_queries * v16_; i += 16) store(o + i, zero());
  }

  void finish(const Unit& unit, const States& states, const float* o) const {
    for (int m = 0; m < unit.n_rows * group_; ++m) {
      const int head = unit.kv_head * group_ + m % group_;
      const SoftmaxState state = states.at(m);
      const float sum = state.sum + (op_.sinks ? exp1(op_.sinks.f32()[head] - state.largest) : 0.0f);
      float* out = op_.out.f32(unit.first_row + m / group_) + int64_t{head} * op_.v_dim;
      for_lanes(0, op_.v_dim, [&](int64_t i, int n) { store_n(out + i, div(load_n(o + m * v16_ + i, n), set1(sum)), n); });
    }
  }

 private:
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

  void tile(const Unit& unit, int n_queries, int base, int first, int last) {
    with_kv_format(op_.kv.planes[0].format, [&](auto kv) { scores<decltype(kv)>(unit, n_queries, base, first, last); });
    struct Range { int first, last; };
    const auto seen_by = [&](int m) {
      const int position = step_.positions().data()[unit.first_row + m / group_] - base;
      return Range{max_of(first, first_seen(op_, position + base) - base), min_of(last, position + 1)};
    };
    for (int m = 0; m < n_queries; ++m) {
      const Range seen = seen_by(m);
      at_.tile.largest[m] = seen.first < seen.last ? scale_tile(at_.s + m * kTile, seen.first, seen.last, op_.scale, op_.softcap) : -__builtin_inff();
    }
    for (int m = 0; m < n_queries; m += 16) add_largest(at_.factor + m, at_.state.largest + m, at_.tile.largest + m);
    for (int m = 0; m < n_queries; ++m) {
      const Range seen = seen_by(m);
      float *s = at_.s + m * kTile, *o = at_.o + m * v16_;
      if (seen.first < seen.last) {
        at_.tile.sum[m] = weigh_tile(s, at_.state.largest[m]);
      } else {                               // as if the tile were not there
        at_.tile.sum[m] = 0;
        for (int i = 0; i < kTile; i += 16) store(s + i, zero());
      }
      if (at_.factor[m] == 1.0f) continue;
      for (int64_t i = 0; i < v16_; i += 16) store(o + i, mul(load(o + i), set1(at_.factor[m])));
    }
    for (int m = 0; m < n_queries; m += 16) add_sums(at_.state.sum + m, at_.factor + m, at_.tile.sum + m);
    with_kv_format(op_.kv.planes[1].format, [&](auto kv) { values<decltype(kv)>(unit, n_queries, base, first, last); });
  }

  template <class Kv>
  void scores(const Unit& unit, int n_queries, int base, int first, int last) {
    const int page = op_.kv.page_size;
    if (n_queries <= kFewQueries) {
      for_pages(first, last, 16, [&](int i, int end) {
        Product<Kv>{at_.s + i, kTile, at_.q, op_.head_dim, k_of<Kv>(unit, base + i), page, 16, op_.head_dim, false}.run(n_queries, (end - i) / 16);
      });
      return;
    }
    for_pages(first, last, 16, [&](int i, int end) {
      const auto* k = k_of<Kv>(unit, base + i);
      for (int d = 0; d < op_.head_dim; ++d)
        for (int j = i; j < end; j += 16) store(at_.k + int64_t{j} * op_.head_dim + d * 16, Kv::load16(k + int64_t{d} * page + j - i));
    });
    const int begin = first / 16 * 16;
    const float* strips = at_.k + int64_t{begin} * op_.head_dim;
    const int n_strips = (last - begin + 15) / 16;
    Product<KvF32>{at_.s + begin, kTile, at_.q, op_.head_dim, strips, 16, 16 * int64_t{op_.head_dim}, op_.head_dim, false}.run(n_queries, n_strips);
  }

  template <class Kv>
  void values(const Unit& unit, int n_queries, int base, int first, int last) {
    if (n_queries <= kFewQueries && op_.v_dim % 16 == 0) {
      for_pages(first, last, 1, [&](int i, int end) {
        Product<Kv>{at_.o, v16_, at_.s + i, kTile, v_of<Kv>(unit, base + i), op_.v_dim, 16, end - i, true}.run(n_queries, op_.v_dim / 16);
      });
      return;
    }
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
    Product<KvF32>{at_.o, v16_, at_.s + first, kTile, at_.v + first * 16, 16, 16 * kTile, last - first, true}.run(n_queries, static_cast<int>(v16_ / 16));
  }

  const PagedAttention& op_;
  const Step& step_;
  const Scratch at_;
  const int group_;
  const int64_t v16_;
};

}  // namespace

void paged_attention(const PagedAttention& op, Lane& lane) {
  const Step& step = *lane.step;
  auto* order = reinterpret_cast<int32_t*>(lane.own.data());
  const int64_t order_bytes = (4 * int64_t{step.n_seqs()} + 63) / 64 * 64, v16 = round16(op.v_dim);
  Units units(op, step, order);
  const int n_most = units.most_queries(), n_spans = units.most_spans();
  const Scratch scratch(op, n_most, lane.own.data() + order_bytes);
  Attention attention(op, step, scratch);

  const int64_t slot = n_most * (v16 + 16);                                  // numbers of a span's outcome: states (16 apart), then sums
  const bool cut = lane.n_workers > 1 && n_spans > 1 && units.count() < 4 * lane.n_workers &&
                   units.count() * n_spans * slot * 4 <= static_cast<int64_t>(lane.shared.size());
  if (!cut) {
    lane.share(units.count(), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const Unit unit = units.at(i);
        const int n_queries = unit.n_rows * (op.n_heads / op.n_kv_heads);
        attention.load_queries(unit);
        attention.clear(scratch.total_state, scratch.total, n_queries);
        for (int s = unit.first / kSpan; s * kSpan < unit.last; ++s) {
          attention.span(unit, s);
          for (int m = 0; m < n_queries; ++m)
            scratch.total_state.set(m, merge(scratch.total_state.at(m), scratch.total + m * v16, scratch.state.at(m), scratch.o + m * v16, v16));
        }
        attention.finish(unit, scratch.total_state, scratch.total);
      }
    });
    return;
  }

  auto* slots = reinterpret_cast<float*>(lane.shared.data());
  lane.share(units.count() * n_spans, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const Unit unit = units.at(i / n_spans);
      const int s = static_cast<int>(i % n_spans), n_queries = unit.n_rows * (op.n_heads / op.n_kv_heads);
      if ((s + 1) * kSpan <= unit.first || s * kSpan >= unit.last) continue;
      attention.load_queries(unit);
      attention.span(unit, s);
      float* out = slots + i * slot;
      for (int m = 0; m < n_queries; ++m) {
        out[m * 16] = scratch.state.largest[m];
        out[m * 16 + 1] = scratch.state.sum[m];
      }
      for (int64_t j = 0; j < n_queries * v16; j += 16) store(out + n_most * 16 + j, load(scratch.o + j));
    }
  });
  lane.barrier();
  Units again(op, step, order);
  const auto [first, last] = lane.part(units.count());
  for (int64_t i = first; i < last; ++i) {
    const Unit unit = again.at(i);
    const int n_queries = unit.n_rows * (op.n_heads / op.n_kv_heads);
    attention.clear(scratch.total_state, scratch.total, n_queries);
    for (int s = unit.first / kSpan; s * kSpan < unit.last; ++s) {
      const float* in = slots + (i * n_spans + s) * slot;
      for (int m = 0; m < n_queries; ++m)
        scratch.total_state.set(m, merge(scratch.total_state.at(m), scratch.total + m * v16, {in[m * 16], in[m * 16 + 1]}, in + n_most * 16 + m * v16, v16));
    }
    attention.finish(unit, scratch.total_state, scratch.total);
  }
}

bool fits_attention(const PagedAttention& op) {
  const int64_t group = op.n_heads / op.n_kv_heads, n_queries = group > kQueries ? group : kQueries;
  return op.n_heads % op.n_kv_heads == 0 && Scratch::n_bytes(op, n_queries) <= int64_t{6} << 20;      // of the 8 MiB that every worker has
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
