// Paged causal attention with an online softmax, in f32.
#include "cpu/kernels/attention_frame.h"
#include "cpu/kernels/kernels.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kFewQueries = 8;               // up to here K and V are read where they lie; beyond, a tile is converted once into scratch

// Rows of the products. Many queries are filled up with zeros to whole register tiles, since what is left over would leave the FMA units waiting: with 30 of
// them (ten rows of three heads) a product took 40 cycles for every 32 it takes now.
inline int product_rows(int n_queries) { return n_queries <= kFewQueries ? n_queries : (n_queries + kProductRows - 1) / kProductRows * kProductRows; }

class FloatTiles {
 public:
  static constexpr int kTile = 64, kQueries = 32;

  static int64_t width(const PagedAttention& op) { return round16(op.v_dim); }
  static int64_t n_bytes(const PagedAttention& op, int64_t m, int64_t n_blocks) {
    return 4 * (m * (n_blocks * op.head_dim + kTile) + kTile * (op.head_dim + width(op)));
  }
  FloatTiles(const Frame& frame, int64_t n_blocks, std::byte* memory) : at_(frame), op_(frame.op) {
    auto* p = reinterpret_cast<float*>(memory);
    const auto take = [&p](int64_t n) { return (p += n) - n; };
    k_ = take(kTile * op_.head_dim);
    v_ = take(kTile * at_.width);
    s_ = take(at_.m * kTile);
    q_ = take(n_blocks * at_.m * op_.head_dim);
  }

  void load_queries(const Unit& unit, const Block& block) const {
    float* out = q_ + block.slot * op_.head_dim;
    for (int m = 0; m < block.n_queries; ++m) {
      const float* q = at_.query(unit, block, m);
      for (int d = 0; d < op_.head_dim; ++d) out[m * op_.head_dim + d] = q[d];
    }
    for (int i = block.n_queries * op_.head_dim; i < product_rows(block.n_queries) * op_.head_dim; ++i) out[i] = 0.0f;
  }

  void convert(const Unit& unit, int base, int first, int last) const {
    if (is_fp8(0)) convert_fp8_keys(unit, base, first, last);
    else if (!few(unit)) with_kv_format(op_.kv.planes[0].format, [&](auto kv) { convert_keys<decltype(kv)>(unit, base, first, last); });
    if (is_fp8(1)) convert_fp8_values(unit, base, first, last);
    else if (!few(unit) || op_.v_dim % 16 != 0) with_kv_format(op_.kv.planes[1].format, [&](auto kv) { convert_values<decltype(kv)>(unit, base, first, last); });
  }

  void scores(const Unit& unit, const Block& block, int base, int first, int last) const {
    const float* q = q_ + block.slot * op_.head_dim;
    if (few(unit) && !is_fp8(0)) {
      with_kv_format(op_.kv.planes[0].format, [&](auto kv) {
        using Kv = decltype(kv);
        at_.for_pages(first, last, 16, [&](int i, int end) {
          const auto of = [&](int position) { return at_.template k_of<Kv>(unit, position); };
          Product<Kv>{s_ + i, kTile, q, op_.head_dim, of(base + i), op_.kv.page_size, 16, op_.head_dim, false, next_tile(unit, base + i, of)}.run(block.n_queries, (end - i) / 16);
        });
      });
      return;
    }
    const int begin = first / 16 * 16, n_strips = (last - begin + 15) / 16;
    const float* strips = k_ + int64_t{begin} * op_.head_dim;
    Product<KvF32>{s_ + begin, kTile, q, op_.head_dim, strips, 16, 16 * int64_t{op_.head_dim}, op_.head_dim, false}.run(product_rows(block.n_queries), n_strips);
  }

  float scale(int m, const Range& seen, const Range&) const { return scale_tile(s_ + m * kTile, seen.first, seen.last, op_.scale, op_.softcap); }
  float weigh(int m, float largest, const Range&) const { return weigh_tile(s_ + m * kTile, largest); }
  void forget(int m) const {
    for (int i = 0; i < kTile; i += 16) store(s_ + m * kTile + i, zero());
  }

  void values(const Unit& unit, const Block& block, int base, int first, int last) const {
    float* o = at_.o + block.slot * at_.width;
    if (few(unit) && op_.v_dim % 16 == 0 && !is_fp8(1)) {
      with_kv_format(op_.kv.planes[1].format, [&](auto kv) {
        using Kv = decltype(kv);
        at_.for_pages(first, last, 1, [&](int i, int end) {
          const auto of = [&](int position) { return at_.template v_of<Kv>(unit, position); };
          Product<Kv>{o, at_.width, s_ + i, kTile, of(base + i), op_.v_dim, 16, end - i, true, next_tile(unit, base + i, of)}.run(block.n_queries, op_.v_dim / 16);
        });
      });
      return;
    }
    Product<KvF32>{o, at_.width, s_ + first, kTile, v_ + first * 16, 16, 16 * kTile, last - first, true}.run(product_rows(block.n_queries), static_cast<int>(at_.width / 16));
  }

  void put(float* out, const float* o, float sum) const {
    for_lanes(0, op_.v_dim, [&](int64_t i, int n) { store_n(out + i, div(load_n(o + i, n), set1(sum)), n); });
  }

 private:
  bool is_fp8(int plane) const { return op_.kv.planes[static_cast<size_t>(plane)].format == FormatId::fp8_e4m3; }
  bool few(const Unit& unit) const { return unit.n_rows * at_.group <= kFewQueries; }

  // Where what belongs to a position lies in the next tile, if that is asked for ahead; null if not.
  template <class Of>
  static const std::byte* next_tile(const Unit& unit, int position, Of&& of) {
    return kAsksAhead && position + kTile < unit.last ? reinterpret_cast<const std::byte*>(of(position + kTile)) : nullptr;
  }

  template <class Kv>
  void convert_keys(const Unit& unit, int base, int first, int last) const {
    const int page = op_.kv.page_size;
    at_.for_pages(first, last, 16, [&](int i, int end) {
      const auto* k = at_.template k_of<Kv>(unit, base + i);
      for (int d = 0; d < op_.head_dim; ++d)
        for (int j = i; j < end; j += 16) store(k_ + int64_t{j} * op_.head_dim + d * 16, Kv::load16(k + int64_t{d} * page + j - i));
    });
  }

  template <class Kv>
  void convert_values(const Unit& unit, int base, int first, int last) const {
    at_.for_pages(first, last, 1, [&](int i, int end) {
      const auto* v = at_.template v_of<Kv>(unit, base + i);
      for (int j = i; j < end; ++j, v += op_.v_dim) {
        int d = 0;
        for (; d + 16 <= op_.v_dim; d += 16) store(v_ + d * kTile + j * 16, Kv::load16(v + d));
        if (d == op_.v_dim) continue;
        typename Kv::Bits tail[16] = {};
        for (int e = d; e < op_.v_dim; ++e) tail[e - d] = v[e];
        store(v_ + d * kTile + j * 16, Kv::load16(tail));
      }
    });
  }

  // In fp8 a tile is always converted, by scales that are a vector for keys (16 positions) and a number for values.
  void convert_fp8_keys(const Unit& unit, int base, int first, int last) const {
    const int page = op_.kv.page_size;
    at_.for_pages(first, last, 16, [&](int i, int end) {
      const auto* k = at_.template k_of<KvFp8>(unit, base + i);
      const float* scales = at_.scales_of(unit, 0, base + i);
      for (int j = i; j < end; j += 16) {
        const F scale = load(scales + j - i);
        for (int d = 0; d < op_.head_dim; ++d) store(k_ + int64_t{j} * op_.head_dim + d * 16, mul(KvFp8::load16(k + int64_t{d} * page + j - i), scale));
      }
    });
  }

  void convert_fp8_values(const Unit& unit, int base, int first, int last) const {
    at_.for_pages(first, last, 1, [&](int i, int end) {
      const auto* v = at_.template v_of<KvFp8>(unit, base + i);
      const float* scales = at_.scales_of(unit, 1, base + i);
      for (int j = i; j < end; ++j, v += op_.v_dim) {
        const F scale = set1(scales[j - i]);
        int d = 0;
        for (; d + 16 <= op_.v_dim; d += 16) store(v_ + d * kTile + j * 16, mul(KvFp8::load16(v + d), scale));
        if (d == op_.v_dim) continue;
        uint8_t tail[16] = {};
        for (int e = d; e < op_.v_dim; ++e) tail[e - d] = v[e];
        store(v_ + d * kTile + j * 16, mul(KvFp8::load16(tail), scale));
      }
    });
  }

  const Frame& at_;
  const PagedAttention& op_;
  float *k_, *v_, *s_, *q_;                  // strips: [64 / 16][head_dim][16], [width / 16][64][16]; [M][64], [blocks][M][head_dim]
};

}  // namespace

void paged_attention(const PagedAttention& op, Lane& lane) { attend<FloatTiles>(op, lane); }
bool fits_attention(const PagedAttention& op) { return fits<FloatTiles>(op); }

}  // namespace ridge::cpu::RIDGE_ISA_NS
