// Paged causal attention whose two products are products of bf16 numbers on AMX tiles, for KV in f16 or bf16; the softmax is in f32. One query gets the same bits as
// among many: up to 8 of them go over vectors, in the tiles' order (few_products.h).
//
// Tiles of K and V become column tiles of pairs (simd/tiles.h) in scratch: pairs of dimensions of 16 positions, pairs of positions of 16 dimensions. Pairing 32 of
// them at a time puts positions and dimensions in an order of its own within 32 (place_of). Nothing minds: scores and weights stay in it, pairs of positions are put
// where the weights look for them, and the sums are brought back to order at the end. f16 goes to bf16 as an integer, without its exponent's offset: 2^-112 of
// the number, which the queries (2^96), the scores (2^16) and the weights (2^112) make good.
//
// Plain bf16 is enough where it is used, before an int8 product: with random queries and keys (logits of spread 1 to 8) outputs are 0.3 to 0.8 % off, 0.03 to 0.07 %
// with f16 and f32 sums, and rounding them to int8, as comes next, is 0.6 %. Splitting keys in two parts would make it exact and reading them twice as dear.
//
// On Emerald Rapids 2.2 times as fast as f32 on vectors at 512 tokens. Of the same number of matmul operations it did 0.52 with tiles of 128 positions and blocks of 64
// queries, 0.49 with 128 and 32, 0.51 with 256 and 32, 0.43 with 64 and 32; asking for the next tile beforehand gains nothing with that many queries.
#include <type_traits>

#include "cpu/kernels/attention_frame.h"
#include "cpu/kernels/few_products.h"
#include "cpu/kernels/kernels.h"
#include "cpu/simd/pause.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kFewQueries = 8, kMostDims = 1024;

struct FromF16 {
  static constexpr float kQuery = 0x1p96f, kScore = 0x1p16f, kWeight = 0x1p-112f;
  static constexpr int kWeightBits = 112;
  static H bf16(H x) { return bf16_of_f16(x); }
  static H bf16_or_nan(H x) { return bf16_of_f16_or_nan(x); }
};
struct FromBf16 {
  static constexpr float kQuery = 1, kScore = 1, kWeight = 1;
  static constexpr int kWeightBits = 0;
  static H bf16(H x) { return x; }
  static H bf16_or_nan(H x) { return x; }
};
template <class Fn>
inline void with_half(FormatId f, Fn&& fn) {
  if (f == FormatId::f16) fn(FromF16{});
  else fn(FromBf16{});
}

// The position that a score has when it lies at i, and where that of a position lies.
constexpr int position_at(int i) { return i / 32 * 32 + i % 16 / 4 * 8 + i / 16 % 2 * 4 + i % 4; }
constexpr int place_of(int position) { return position / 32 * 32 + position % 32 / 8 * 4 + position / 4 % 2 * 16 + position % 4; }
struct Places {
  alignas(64) float at[32];
  constexpr Places() : at() {
    for (int i = 0; i < 32; ++i) at[i] = static_cast<float>(position_at(i));
  }
};
constexpr Places kPlace;
// Where pair i of a tile's positions lies: the weights of places 2 j and 2 j + 1 meet pair j.
constexpr int place_of_pair(int i) { return place_of(2 * i) / 2; }

// 2^z for z up to 0 or so, to 13 bits (the weights are rounded to 8), times what `rounder` has beyond 1.5 * 2^23 as a power of two. 0 below 2^-125.
inline F power_of_two(F z, F rounder) {
  const F lowest = set1(-125.0f), bounded = max(lowest, z), t = add(bounded, rounder), r = sub(bounded, sub(t, rounder));
  const F p = fma(fma(fma(set1(0.05500837f), r, set1(0.24220985f)), r, set1(0.69328287f)), r, set1(1.0f));
  return select(lt(z, lowest), zero(), as_float(iadd(as_int(p), shl<23>(as_int(t)))));
}

class Bf16Tiles {
 public:
  static constexpr int kTile = 128, kQueries = 64;

  static int64_t width(const PagedAttention& op) { return round32(op.v_dim); }
  static int64_t n_bytes(const PagedAttention& op, int64_t m, int64_t n_blocks) {
    return 2 * (m * (n_blocks * round32(op.head_dim) + kTile) + kTile * (round32(op.head_dim) + width(op))) + 4 * m * kTile;
  }
  Bf16Tiles(const Frame& frame, int64_t n_blocks, std::byte* memory) : at_(frame), op_(frame.op), dims_(round32(op_.head_dim)) {
    auto* p = reinterpret_cast<uint16_t*>(memory);
    const auto take = [&p](int64_t n) { return (p += n) - n; };
    k_ = take(kTile * dims_);
    v_ = take(kTile * at_.width);
    p_ = take(at_.m * kTile);
    q_ = take(n_blocks * at_.m * dims_);
    s_ = reinterpret_cast<float*>(p);
    constexpr float kLog2E = 1.44269504088896341f;
    with_half(op_.kv.planes[0].format, [&](auto kv) { query_factor_ = kv.kQuery, score_factor_ = kv.kScore * op_.scale; });
    with_half(op_.kv.planes[1].format, [&](auto kv) { weight_bits_ = kv.kWeightBits, weight_unit_ = kv.kWeight; });
    exponent_factor_ = op_.softcap > 0 ? kLog2E : score_factor_ * kLog2E;
  }

  void load_queries(const Unit& unit, const Block& block) const {
    uint16_t* out = q_ + block.slot * dims_;
    const F factor = set1(query_factor_);
    for (int m = 0; m < round16(block.n_queries); ++m, out += dims_)
      for (int d = 0; d < dims_; d += 32) {
        F x[2] = {zero(), zero()};
        if (m < block.n_queries)
          for (int i = 0; i < 2; ++i) x[i] = mul(factor, load_n(at_.query(unit, block, m) + d + 16 * i, op_.head_dim - d - 16 * i));
        store_bf16(out + d, x[0], x[1]);
      }
  }

  void convert(const Unit& unit, int base, int first, int last) const {
    if (few(unit)) return;
    with_half(op_.kv.planes[0].format, [&](auto kv) { convert_keys<decltype(kv)>(unit, base, first, last); });
    with_half(op_.kv.planes[1].format, [&](auto kv) { convert_values<decltype(kv)>(unit, base, first, last); });
  }

  void scores(const Unit& unit, const Block& block, int base, int first, int last) const {
    if (few(unit)) return with_half(op_.kv.planes[0].format, [&](auto kv) { few_scores<decltype(kv)>(unit, block, base, first, last); });
    const int begin = first / 32 * 2, end = (last + 31) / 32 * 2;                              // column tiles
    const TileProduct product{s_ + 16 * begin, kTile, q_ + block.slot * dims_, dims_, k_ + begin * 16 * dims_, 16 * dims_, static_cast<int>(dims_ / 32), false};
    product.run(row_tiles(block), end - begin);
  }

  float scale(int m, const Range& seen, const Range& all) const {
    const F nothing = set1(-__builtin_inff());
    F largest[2] = {nothing, nothing};
    for (int i = all.first / 32 * 32; i < all.last; i += 32) {
      float* s = s_ + m * kTile + i;
      const bool whole = seen.first <= i && seen.last >= i + 32;
      const F first = set1(static_cast<float>(seen.first - i)), last = set1(static_cast<float>(seen.last - i));
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        F x = load(s + 16 * j);
        if (op_.softcap > 0) x = soft_cap(mul(x, set1(score_factor_)), op_.softcap);
        if (!whole) {
          const F place = load(kPlace.at + 16 * j);
          x = select(lt(place, first), nothing, select(lt(place, last), x, nothing));
        }
        if (!whole || op_.softcap > 0) store(s + 16 * j, x);
        largest[j] = max(largest[j], x);
      }
    }
    const float most = reduce_max(max(largest[0], largest[1]));
    return op_.softcap > 0 ? most : most * score_factor_;
  }

  float weigh(int m, float largest, const Range& all) const {
    const F factor = set1(exponent_factor_), offset = set1(-1.44269504088896341f * largest), rounder = set1(12582912.0f + static_cast<float>(weight_bits_));
    F sum[2] = {zero(), zero()};
    for (int i = all.first / 32 * 32; i < all.last; i += 32) {
      const float* s = s_ + m * kTile + i;
      F x[2];
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        x[j] = power_of_two(fma(load(s + 16 * j), factor, offset), rounder);
        sum[j] = add(sum[j], x[j]);
      }
      store_bf16(p_ + m * kTile + i, x[0], x[1]);
    }
    return reduce_add(add(sum[0], sum[1])) * weight_unit_;
  }
  void forget(int m) const {
    for (int j = 0; j < kTile; j += 32) store_bf16(p_ + m * kTile + j, zero(), zero());
  }

  void values(const Unit& unit, const Block& block, int base, int first, int last) const {
    if (few(unit)) return with_half(op_.kv.planes[1].format, [&](auto kv) { few_values<decltype(kv)>(unit, block, base, first, last); });
    const int begin = first / 32, end = (last + 31) / 32;                                      // chunks of 32 positions
    const TileProduct product{at_.o + block.slot * at_.width, at_.width, p_ + 32 * begin, kTile, v_ + 512 * begin, 16 * kTile, end - begin, true};
    product.run(row_tiles(block), static_cast<int>(at_.width / 16));
  }

  void put(float* out, const float* o, float sum) const {
    for (int d = 0; d < op_.v_dim; d += 32) {
      F lo = load(o + d), hi = load(o + d + 16);
      unpair(lo, hi);
      store_n(out + d, div(lo, set1(sum)), min_of(16, op_.v_dim - d));
      if (d + 16 < op_.v_dim) store_n(out + d + 16, div(hi, set1(sum)), min_of(16, op_.v_dim - d - 16));
    }
  }

 private:
  static int row_tiles(const Block& block) { return (block.n_queries + 15) / 16; }
  bool few(const Unit& unit) const { return unit.n_rows * at_.group <= kFewQueries; }

  // Where a tile's keys lie, of every 32 positions the first and the second 16. What nobody sees is not looked at: it may have no page.
  struct KeyRows {
    const uint16_t* at[kTile / 32][2];
    int64_t page;
    // 32 positions of a dimension: in one page, or in two.
    H whole(int i, int d) const { return hload(at[i][0] + d * page); }
    H halves(int i, int d) const { return hload_halves(at[i][0] + (at[i][0] == kNone ? 0 : 16 * d), at[i][1] + (at[i][1] == kNone ? 0 : 16 * d)); }
    H row(int i, int d) const { return page > 16 ? whole(i, d) : halves(i, d); }
  };
  KeyRows keys_of(const Unit& unit, int base, int first, int last) const {
    KeyRows keys;
    keys.page = op_.kv.page_size;
    for (int i = first / 32; i < (last + 31) / 32; ++i)
      for (int j = 0; j < 2; ++j) {
        const int position = 32 * i + 16 * j;
        keys.at[i][j] = keys.page > 16 || (position < last && position + 16 > first) ? at_.k_of<KvF16>(unit, base + position) : kNone;
      }
    return keys;
  }

  // A number that is not finite would become a finite one. A token whose numbers are damaged has them damaged in all dimensions, so the first two are looked at, and
  // its scores are NaNs.
  template <class From>
  static H key(const KeyRows& keys, int i, int d) { return d < 2 ? From::bf16_or_nan(keys.row(i, d)) : From::bf16(keys.row(i, d)); }

  template <class From>
  void convert_keys(const Unit& unit, int base, int first, int last) const {
    const int begin = first / 32, end = (last + 31) / 32;
    const KeyRows keys = keys_of(unit, base, first, last);
    const auto store_at = [&](int i, int d, H x, H y) {
      uint16_t* out = k_ + (int64_t{2} * i * dims_ + d) * 16;
      store_pairs(out, out + dims_ * 16, x, y);
    };
    int d = 0;
    for (; d + 2 <= op_.head_dim; d += 2)
      for (int i = begin; i < end; ++i) store_at(i, d, key<From>(keys, i, d), key<From>(keys, i, d + 1));
    for (; d < dims_; d += 2)
      for (int i = begin; i < end; ++i) store_at(i, d, d < op_.head_dim ? key<From>(keys, i, d) : hzero(), hzero());
  }

  // Weights of positions that nobody sees are zeros, and their values must be numbers.
  template <class From>
  void convert_values(const Unit& unit, int base, int first, int last) const {
    for (int i = first / 32 * 16; i < (last + 31) / 32 * 16; ++i) {                            // pairs
      const bool has[2] = {2 * i >= first && 2 * i < last, 2 * i + 1 >= first && 2 * i + 1 < last};
      const uint16_t* v = has[0] || has[1] ? at_.v_of<KvF16>(unit, base + 2 * i) : nullptr;
      uint16_t* out = v_ + place_of_pair(i) * 32;
      int d = 0;
      if (has[0] && has[1])
        for (; d + 32 <= op_.v_dim; d += 32, out += 2 * 16 * kTile) store_pairs(out, out + 16 * kTile, From::bf16(hload(v + d)), From::bf16(hload(v + op_.v_dim + d)));
      for (; d < at_.width; d += 32, out += 2 * 16 * kTile) {
        const auto row = [&](int j) { return has[j] ? hload_n(v + j * op_.v_dim + d, op_.v_dim - d) : hzero(); };
        store_pairs(out, out + 16 * kTile, From::bf16(row(0)), From::bf16(row(1)));
      }
    }
  }

  // A few queries are done with a tile sooner than the memory with the next, so for every line that is read the same one of the next tile is asked for (if there is
  // none, any line that is there).
  template <class From>
  void few_scores(const Unit& unit, const Block& block, int base, int first, int last) const {
    float a[kFewQueries * kMostDims];
    widen_rows(a, q_ + block.slot * dims_, static_cast<int>(dims_), block.n_queries);
    const KeyRows keys = keys_of(unit, base, first, last);
    const int begin = first / 32, end = (last + 31) / 32;
    const uint16_t* next[kTile / 32];
    for (int i = begin; i < end; ++i) {
      const int position = base + kTile + 32 * i;
      next[i] = position < unit.last ? at_.k_of<KvF16>(unit, position) : keys.at[i][0] == kNone ? keys.at[i][1] : keys.at[i][0];
    }
    const auto product = [&](const auto& row) { FewProduct<std::decay_t<decltype(row)>>{s_, kTile, a, dims_, 0, op_.head_dim, false, row}.run(block.n_queries, begin, end); };
    if (keys.page > 16) product([&](int d, int i) { return prefetch_idle(next[i] + d * keys.page), From::bf16(keys.whole(i, d)); });
    else product([&](int d, int i) { return From::bf16(keys.halves(i, d)); });
    for (int d = 0; d < 2 && d < op_.head_dim; ++d)                                            // NaNs
      for (int i = begin; i < end; ++i) {
        F key_lo, key_hi;
        widen(key_lo, key_hi, key<From>(keys, i, d));
        for (int m = 0; m < block.n_queries; ++m) {
          float* s = s_ + m * kTile + 32 * i;
          store(s, fma(key_lo, zero(), load(s)));
          store(s + 16, fma(key_hi, zero(), load(s + 16)));
        }
      }
  }

  template <class From>
  void few_values(const Unit& unit, const Block& block, int base, int first, int last) const {
    float a[kFewQueries * kTile];
    widen_rows(a, p_, kTile, block.n_queries);
    const int begin = first / 32 * 32, end = (last + 31) / 32 * 32;
    const uint16_t *rows[kTile], *next[kTile];                                                 // in the order of the weights
    for (int i = begin; i < end; i += 16) {
      const uint16_t* here = i < last && i + 16 > first ? at_.v_of<KvF16>(unit, base + i) : nullptr;
      const uint16_t* there = base + kTile + i < unit.last ? at_.v_of<KvF16>(unit, base + kTile + i) : nullptr;
      for (int j = 0; j < 16; ++j) {
        const int place = place_of(i + j);
        rows[place] = i + j >= first && i + j < last ? here + j * op_.v_dim : kZeros;
        next[place] = there ? there + j * op_.v_dim : rows[place];
      }
    }
    const auto product = [&](const auto& row) {
      FewProduct<std::decay_t<decltype(row)>>{at_.o + block.slot * at_.width, at_.width, a, kTile, begin, end, true, row}.run(block.n_queries, 0, static_cast<int>(at_.width / 32));
    };
    if (op_.v_dim % 32 == 0) product([&](int k, int i) { return prefetch_idle(next[k] + 32 * i), From::bf16(hload(rows[k] + 32 * i)); });
    else product([&](int k, int i) { return From::bf16(hload_n(rows[k] + 32 * i, min_of(32, op_.v_dim - 32 * i))); });
  }

  // n_rows of n bf16 numbers each, a multiple of 16, as floats.
  static void widen_rows(float* out, const uint16_t* in, int n, int n_rows) {
    for (int i = 0; i < n * n_rows; i += 16) store(out + i, load_bf16(in + i));
  }

  static constexpr uint16_t kNone[16] = {}, kZeros[kMostDims] = {};

  const Frame& at_;
  const PagedAttention& op_;
  const int64_t dims_;                       // head_dim, filled up to a multiple of 32
  uint16_t *k_, *v_, *p_, *q_;               // [kTile / 16][dims / 2][16][2], [width / 16][kTile / 2][16][2], [M][kTile], [blocks][M][dims]
  float* s_;                                 // [M][kTile]
  float query_factor_ = 1, score_factor_ = 1, exponent_factor_ = 1, weight_unit_ = 1;
  int weight_bits_ = 0;
};

bool is_half(FormatId f) { return f == FormatId::f16 || f == FormatId::bf16; }

}  // namespace

void bf16_attention(const PagedAttention& op, Lane& lane) {
  int64_t most_rows = 1;
  for (const StepSeq& seq : lane.step->seqs()) most_rows = seq.n_rows > most_rows ? seq.n_rows : most_rows;
  const int64_t most_queries = most_rows * (op.n_heads / op.n_kv_heads);
  const NoSubnormals none;
  if (most_queries > kFewQueries) begin_tiles(most_queries < 16 ? static_cast<int>(most_queries) : 16);
  attend<Bf16Tiles>(op, lane);
  if (most_queries > kFewQueries) end_tiles();
}

bool fits_bf16_attention(const PagedAttention& op) {
  return is_half(op.kv.planes[0].format) && is_half(op.kv.planes[1].format) && op.head_dim <= kMostDims && op.v_dim <= kMostDims && op.scale > 0 && fits<Bf16Tiles>(op);
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
