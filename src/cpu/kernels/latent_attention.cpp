// Attention of many query heads over one key, whose first numbers are the value: latent attention, all of it or selected positions, and compressed entries.
//
// A unit is a token and 32 of its heads: they see the same entries, so a tile of 64 of them is read once, as rows of floats R[64][head_dim], and serves as keys
// and as values: S^T[64][heads] = R Q^T, then weights P = softmax(S), then O[heads][v_dim] += P R. Nothing but the 64 x 32 scores is ever transposed.
//
// What a token sees is a row of tiles: entries (or what was selected) in order, 64 at a time, then positions, cut at absolute multiples of 64. Spans of 16 tiles
// start from an empty softmax and are merged in order, so workers may share a long context, and the bits depend on the token's position and selection alone.
#include "cpu/kernels/attention_tile.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/kv_rows.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kTile = 64, kSpanTiles = 16, kHeads = 32;

inline int min_of(int a, int b) { return a < b ? a : b; }
inline int max_of(int a, int b) { return a > b ? a : b; }

// What a token sees, as tiles.
struct Sight {
  const StepSeq* seq;
  const int32_t* selected = nullptr;         // of the listed ones; null: all of them, in order
  const KvRef* listed_kv = nullptr;
  int n_listed = 0, first = 0, last = 0;     // listed entries; then positions [first, last)

  Sight(const PagedAttention& op, const Step& step, int64_t t) : seq(&step.seqs().data()[step.seq_of().data()[t]]) {
    const int position = step.positions().data()[t];
    if (op.entries.base) {
      listed_kv = &op.entries;
      n_listed = (position + 1) / op.entries.planes[0].every;
    }
    if (op.selected) {
      if (!listed_kv) listed_kv = &op.kv;
      selected = op.selected.row_as<const int32_t>(t);
      for (n_listed = 0; n_listed < op.selected.cols && selected[n_listed] >= 0;) ++n_listed;
      if (!op.entries.base) return;
    }
    first = op.window > 0 ? max_of(0, position - op.window + 1) : 0;
    last = position + 1;
  }
  int listed_tiles() const { return (n_listed + kTile - 1) / kTile; }
  int n_tiles() const { return listed_tiles() + (last > first ? (last + kTile - 1) / kTile - first / kTile : 0); }
};

struct Scratch {
  float *q, *rows, *st, *s, *o, *total;      // [head_dim][32], [64][stride], [64][32], [32][64], [32][v16], [32][v16]
  SoftmaxState *state, *total_state;         // [32]

  static int64_t n_floats(const PagedAttention& op) {
    return kHeads * int64_t{op.head_dim} + kTile * round16(op.head_dim) + 2 * kTile * kHeads + 2 * kHeads * round16(op.v_dim) + 4 * kHeads;
  }
  Scratch(const PagedAttention& op, std::byte* memory) {
    auto* p = reinterpret_cast<float*>(memory);
    const auto take = [&p](int64_t n) { return (p += n) - n; };
    q = take(kHeads * int64_t{op.head_dim});
    rows = take(kTile * round16(op.head_dim));
    st = take(kTile * kHeads);
    s = take(kTile * kHeads);
    o = take(kHeads * round16(op.v_dim));
    total = take(kHeads * round16(op.v_dim));
    state = reinterpret_cast<SoftmaxState*>(take(2 * kHeads));
    total_state = reinterpret_cast<SoftmaxState*>(take(2 * kHeads));
  }
};

// One query's tile: scores become weights; returns the factor for what was accumulated before.
inline float add_tile(SoftmaxState& state, float* s, int last, float scale, float softcap) {
  const float tile_largest = scale_tile(s, 0, last, scale, softcap), largest = tile_largest > state.largest ? tile_largest : state.largest;
  const float factor = largest != state.largest ? exp1(state.largest - largest) : 1.0f;
  state = {largest, state.sum * factor + weigh_tile(s, largest)};
  return factor;
}

class LatentAttention {
 public:
  LatentAttention(const PagedAttention& op, const Step& step, const Scratch& scratch)
      : op_(op), step_(step), at_(scratch), stride_(round16(op.head_dim)), v16_(round16(op.v_dim)) {}

  int n_blocks() const { return (op_.n_heads + kHeads - 1) / kHeads; }

  void begin(int64_t t, int block) {
    t_ = t;
    first_head_ = block * kHeads;
    n_heads_ = min_of(kHeads, op_.n_heads - first_head_);
    columns_ = round16(n_heads_);
    queries_as_columns(at_.q, op_.q.f32(t), op_.head_dim, first_head_, n_heads_, columns_);
  }

  void clear(SoftmaxState* state, float* o) const {
    for (int h = 0; h < kHeads; ++h) state[h] = {-__builtin_inff(), 0.0f};
    for (int64_t i = 0; i < n_heads_ * v16_; i += 16) store(o + i, zero());
  }

  // The softmax states and sums of one span, from nothing, in at_.state and at_.o.
  void span(const Sight& sight, int index) {
    clear(at_.state, at_.o);
    const int last = min_of(sight.n_tiles(), (index + 1) * kSpanTiles);
    for (int tile = index * kSpanTiles; tile < last; ++tile) add(sight, tile);
  }

  void merge_into_total(const SoftmaxState* state, const float* o) {
    for (int h = 0; h < n_heads_; ++h) at_.total_state[h] = merge(at_.total_state[h], at_.total + h * v16_, state[h], o + h * v16_, v16_);
  }

  void finish() const {
    for (int h = 0; h < n_heads_; ++h) {
      const int head = first_head_ + h;
      const SoftmaxState& state = at_.total_state[h];
      const float sum = state.sum + (op_.sinks ? exp1(op_.sinks.f32()[head] - state.largest) : 0.0f);
      float* out = op_.out.f32(t_) + int64_t{head} * op_.v_dim;
      for_lanes(0, op_.v_dim, [&](int64_t i, int n) { store_n(out + i, div(load_n(at_.total + h * v16_ + i, n), set1(sum)), n); });
    }
  }

 private:
  // Tile `tile` of what is seen as floats in at_.rows; returns how many rows it has.
  int read(const Sight& sight, int tile) {
    int n = 0;
    const int n_listed_tiles = sight.listed_tiles();
    if (tile < n_listed_tiles) {
      for (int i = tile * kTile; i < min_of((tile + 1) * kTile, sight.n_listed); ++i) put(n++, *sight.listed_kv, *sight.seq, sight.selected ? sight.selected[i] : i);
    } else {
      const int base = (sight.first / kTile + tile - n_listed_tiles) * kTile;
      for (int p = max_of(base, sight.first); p < min_of(base + kTile, sight.last); ++p) put(n++, op_.kv, *sight.seq, p);
    }
    return n;
  }
  void put(int row, const KvRef& kv, const StepSeq& seq, int64_t i) {
    read_row(at_.rows + row * stride_, kv_row(kv, step_, seq, i), kv.planes[0].format, op_.head_dim);
  }

  void add(const Sight& sight, int tile) {
    const int n = read(sight, tile);
    Product<KvF32>{at_.st, columns_, at_.rows, stride_, at_.q, columns_, 16, op_.head_dim, false}.run(n, static_cast<int>(columns_ / 16));
    for (int h = 0; h < n_heads_; ++h) {
      float* s = at_.s + h * kTile;
      for (int i = 0; i < n; ++i) s[i] = at_.st[i * columns_ + h];
      const float factor = add_tile(at_.state[h], s, n, op_.scale, op_.softcap);
      if (factor == 1.0f) continue;
      float* o = at_.o + h * v16_;
      for (int64_t i = 0; i < v16_; i += 16) store(o + i, mul(load(o + i), set1(factor)));
    }
    Product<KvF32>{at_.o, v16_, at_.s, kTile, at_.rows, stride_, 16, n, true}.run(n_heads_, static_cast<int>(v16_ / 16));
  }

  const PagedAttention& op_;
  const Step& step_;
  const Scratch at_;
  const int64_t stride_, v16_;
  int64_t t_ = 0, columns_ = 0;
  int first_head_ = 0, n_heads_ = 0;
};

}  // namespace

void latent_attention(const PagedAttention& op, Lane& lane) {
  const Step& step = *lane.step;
  const Scratch scratch(op, lane.own.data());
  LatentAttention attention(op, step, scratch);
  const int64_t n_blocks = attention.n_blocks(), n_units = op.q.rows * n_blocks, v16 = round16(op.v_dim);
  int most_spans = 0;
  for (int64_t t = 0; t < op.q.rows; ++t) most_spans = max_of(most_spans, (Sight(op, step, t).n_tiles() + kSpanTiles - 1) / kSpanTiles);

  const int64_t slot = kHeads * (v16 + 2);                                   // numbers of a span's outcome: states, then sums
  const bool cut = lane.n_workers > 1 && most_spans > 1 && n_units < 4 * lane.n_workers && n_units * most_spans * slot * 4 <= static_cast<int64_t>(lane.shared.size());
  if (!cut) {
    lane.share(n_units, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const Sight sight(op, step, i / n_blocks);
        attention.begin(i / n_blocks, static_cast<int>(i % n_blocks));
        attention.clear(scratch.total_state, scratch.total);
        for (int s = 0; s * kSpanTiles < sight.n_tiles(); ++s) {
          attention.span(sight, s);
          attention.merge_into_total(scratch.state, scratch.o);
        }
        attention.finish();
      }
    });
    return;
  }

  auto* slots = reinterpret_cast<float*>(lane.shared.data());
  lane.share(n_units * most_spans, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t unit = i / most_spans;
      const int s = static_cast<int>(i % most_spans);
      const Sight sight(op, step, unit / n_blocks);
      if (s * kSpanTiles >= sight.n_tiles()) continue;
      attention.begin(unit / n_blocks, static_cast<int>(unit % n_blocks));
      attention.span(sight, s);
      float* out = slots + i * slot;
      for (int h = 0; h < kHeads; ++h) reinterpret_cast<SoftmaxState*>(out)[h] = scratch.state[h];
      for (int64_t j = 0; j < kHeads * v16; j += 16) store(out + 2 * kHeads + j, load(scratch.o + j));
    }
  });
  lane.barrier();
  const auto [first, last] = lane.part(n_units);
  for (int64_t i = first; i < last; ++i) {
    const Sight sight(op, step, i / n_blocks);
    attention.begin(i / n_blocks, static_cast<int>(i % n_blocks));
    attention.clear(scratch.total_state, scratch.total);
    for (int s = 0; s * kSpanTiles < sight.n_tiles(); ++s) {
      const float* in = slots + (i * most_spans + s) * slot;
      attention.merge_into_total(reinterpret_cast<const SoftmaxState*>(in), in + 2 * kHeads);
    }
    attention.finish();
  }
}

bool fits_latent_attention(const PagedAttention& op) {
  return op.value_in_key && op.n_kv_heads == 1 && op.chunk == 0 && op.v_dim <= op.head_dim && 4 * Scratch::n_floats(op) <= int64_t{6} << 20;
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
