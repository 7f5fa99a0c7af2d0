// Linear attention over a checkpoint and the entries since. With G the sum of log decays since the page began, S the page's state and j a position in the page:
//   out_t = (q_t exp(G_t))^T S + sum over j <= t of (q_t . exp(G_t - G_j) k_j) u_j
// so a token reads the state once, as if its dk rows were dk more entries. The delta rule asks the same of k_t, over j < t, before it knows u_t. Sums run over the
// rows of S, then over j from the page's first position: the order does not depend on how many tokens come at once.
//   planes of a page, f32:  [head][dk][dv] state   [k head][64][dk] keys   [head][64][dv] u   [head][64][1 or dk] G
// A unit of work is a sequence and up to 8 heads that share a key, whose products q . k they share too (where the decay is one number per head).
#include "backend/step.h"
#include "cpu/kernels/kernels.h"
#include "cpu/simd/math.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kPage = 64;
constexpr int64_t kHeadsOfUnit = 8;

inline float exp1(float x) {
  float lanes[16];
  store(lanes, exp(set1(x)));
  return lanes[0];
}

inline float dot(const float* a, const float* b, int64_t n) {
  F sum = zero();
  for_lanes(0, n, [&](int64_t i, int width) { sum = fma(load_n(a + i, width), load_n(b + i, width), sum); });
  return reduce_add(sum);
}

// Rows of accumulators and of coefficients: y_i += sum over r of c_i[r] * rows[r], in order of r, however many rows are taken at a time.
struct Sums {
  float* y;
  int64_t y_stride;
  const float* c;
  int64_t c_stride, n;
};
inline void add_rows(const Sums& s, const float* rows, int64_t n_rows, int64_t width) {
  int64_t r = 0;
  for (; r + 4 <= n_rows; r += 4) {
    const float *r0 = rows + r * width, *r1 = r0 + width, *r2 = r1 + width, *r3 = r2 + width;
    for (int64_t i = 0; i < s.n; ++i) {
      const float* c = s.c + i * s.c_stride + r;
      float* y = s.y + i * s.y_stride;
      const F c0 = set1(c[0]), c1 = set1(c[1]), c2 = set1(c[2]), c3 = set1(c[3]);
      for_lanes(0, width, [&](int64_t d, int n) {
        F sum = fma(c0, load_n(r0 + d, n), load_n(y + d, n));
        sum = fma(c1, load_n(r1 + d, n), sum);
        sum = fma(c2, load_n(r2 + d, n), sum);
        store_n(y + d, fma(c3, load_n(r3 + d, n), sum), n);
      });
    }
  }
  for (; r < n_rows; ++r)
    for (int64_t i = 0; i < s.n; ++i) {
      float* y = s.y + i * s.y_stride;
      const F c = set1(s.c[i * s.c_stride + r]);
      for_lanes(0, width, [&](int64_t d, int n) { store_n(y + d, fma(c, load_n(rows + r * width + d, n), load_n(y + d, n)), n); });
    }
}

// One sequence and some heads of one key head.
class Unit {
 public:
  Unit(const LinearScan& op, const Step& step, const StepSeq& seq, int64_t key_head, float* scratch)
      : op_(op), seq_(seq), pages_(step.pages() + seq.first_page[op.kv.group]), first_position_(step.positions().data()[seq.first_row]), key_head_(key_head),
        n_decays_(op.kv.planes[3].head_dim) {
    const int64_t dk = op.dk, dv = op.dv;
    query_ = scratch, sums_ = query_ + 2 * kPage * dk, turned_ = sums_ + 2 * kPage * dv, products_ = turned_ + kPage * dk;
    coefficients_ = products_ + 2 * kPage * kPage;
  }
  static int64_t scratch_floats(int64_t dk, int64_t dv) { return 3 * kPage * dk + 2 * kPage * dv + 2 * kPage * kPage + 2 * kPage; }

  void run(int64_t first_head, int64_t last_head) {
    const bool stores_keys = first_head % (op_.n_heads / op_.n_k_heads) == 0;
    for (int64_t row = seq_.first_row, end = row + seq_.n_rows; row < end; row += n_) {
      const int64_t position = first_position_ + row - seq_.first_row;
      row_ = row, page_index_ = position / kPage, page_ = pages_[page_index_], start_ = position % kPage;
      n_ = std::min(kPage - start_, end - row);
      if (stores_keys) store_keys();
      if (n_decays_ == 1) multiply_keys();
      for (int64_t h = first_head; h < last_head; ++h) {
        if (start_ == 0 && page_index_ > 0 && pages_[page_index_ - 1] >= 0) make_state(h);
        run_head(h);
      }
    }
  }

 private:
  float* plane(int i, int64_t page) const { return reinterpret_cast<float*>(op_.kv.plane(i, static_cast<int32_t>(page))); }
  float* state(int64_t head, int64_t page) const { return plane(0, page) + head * op_.dk * op_.dv; }
  float* writes(int64_t head, int64_t page) const { return plane(2, page) + head * kPage * op_.dv; }
  float* decays(int64_t head, int64_t page) const { return plane(3, page) + head * kPage * n_decays_; }
  // Key j of a page; those of this step may not have been stored yet.
  const float* key(int64_t page_index, int64_t j) const {
    const int64_t in_step = page_index * kPage + j - first_position_;
    return in_step >= 0 ? op_.k.f32(seq_.first_row + in_step) + key_head_ * op_.dk : plane(1, pages_[page_index]) + (key_head_ * kPage + j) * op_.dk;
  }

  void store_keys() const {
    for (int64_t i = 0; i < n_; ++i) {
      const float* from = op_.k.f32(row_ + i) + key_head_ * op_.dk;
      float* to = plane(1, page_) + (key_head_ * kPage + start_ + i) * op_.dk;
      for_lanes(0, op_.dk, [&](int64_t d, int n) { store_n(to + d, load_n(from + d, n), n); });
    }
  }

  // products[i][j] = q_i . k_j, and with the delta rule products[64 + i][j] = k_i . k_j.
  void multiply_keys() const {
    for (int64_t i = 0; i < n_; ++i) {
      const float *q = op_.q.f32(row_ + i) + key_head_ * op_.dk, *k = op_.k.f32(row_ + i) + key_head_ * op_.dk;
      for (int64_t j = 0; j <= start_ + i; ++j) products_[i * kPage + j] = dot(q, key(page_index_, j), op_.dk);
      if (op_.write == ScanWrite::delta)
        for (int64_t j = 0; j <= start_ + i; ++j) products_[(kPage + i) * kPage + j] = dot(k, key(page_index_, j), op_.dk);
    }
  }

  // The state after the page before: what its own state has decayed to, and its 64 entries.
  void make_state(int64_t head) const {
    const int64_t dk = op_.dk, dv = op_.dv, before = pages_[page_index_ - 1];
    const float* g = decays(head, before);
    float* to = state(head, page_);
    const float* last = g + (kPage - 1) * n_decays_;
    for (int64_t d = 0; d < dk; ++d) {
      const F factor = set1(exp1(last[d % n_decays_]));
      const float* from = state(head, before) + d * dv;
      for_lanes(0, dv, [&](int64_t e, int n) { store_n(to + d * dv + e, page_index_ > 1 ? mul(factor, load_n(from + e, n)) : zero(), n); });
    }
    for (int64_t j = 0; j < kPage; ++j) {
      const float* k = key(page_index_ - 1, j);
      const F one = exp(set1(last[0] - g[j * n_decays_]));
      for_lanes(0, dk, [&](int64_t d, int n) {
        const F factor = n_decays_ == 1 ? one : exp(sub(load_n(last + d, n), load_n(g + j * n_decays_ + d, n)));
        float lanes[16];
        store(lanes, mul(factor, load_n(k + d, n)));
        for (int i = 0; i < n; ++i) turned_[(d + i) * kPage + j] = lanes[i];
      });
    }
    add_rows({to, dv, turned_, kPage, dk}, writes(head, before), kPage, dv);
  }

  // G of this step's tokens, and their dt (of the first dimension, where there are several) for u = dt * v.
  void sum_decays(int64_t head, float* dts) const {
    float* g = decays(head, page_) + start_ * n_decays_;
    const F rate = set1(op_.rate.f32()[head]), least = set1(op_.dt_least), most = set1(op_.dt_most);
    for (int64_t i = 0; i < n_; ++i, g += n_decays_) {
      const float* gate = op_.gate ? op_.gate.f32(row_ + i) + head * n_decays_ : nullptr;
      for_lanes(0, n_decays_, [&](int64_t d, int n) {
        const F dt = gate ? min(max(softplus(load_n(gate + d, n)), least), most) : set1(1.0f);
        const F before = start_ + i > 0 ? load_n(g - n_decays_ + d, n) : zero();
        store_n(g + d, add(before, mul(rate, dt)), n);
        if (d == 0) store_n(dts + i, dt, 1);
      });
    }
  }

  // Coefficients of u_j, j in [0, n), for q_i and (second row) for k_i.
  void coefficients(int64_t head, int64_t i, int64_t n_keys) const {
    const float *g = decays(head, page_), *last = g + (start_ + i) * n_decays_;
    const bool delta = op_.write == ScanWrite::delta;
    const F q_scale = set1(op_.q_scale);
    if (n_decays_ == 1) {
      for_lanes(0, n_keys, [&](int64_t j, int n) {
        const F factor = exp(sub(set1(*last), load_n(g + j, n)));
        store_n(coefficients_ + j, mul(mul(factor, q_scale), load_n(products_ + i * kPage + j, n)), n);
        if (delta) store_n(coefficients_ + kPage + j, mul(factor, load_n(products_ + (kPage + i) * kPage + j, n)), n);
      });
      return;
    }
    const float *q = op_.q.f32(row_ + i) + key_head_ * op_.dk, *k = op_.k.f32(row_ + i) + key_head_ * op_.dk;
    for (int64_t j = 0; j < n_keys; ++j) {
      const float *kj = key(page_index_, j), *gj = g + j * n_decays_;
      F for_q = zero(), for_k = zero();
      for_lanes(0, op_.dk, [&](int64_t d, int n) {
        const F decayed = mul(exp(sub(load_n(last + d, n), load_n(gj + d, n))), load_n(kj + d, n));
        for_q = fma(load_n(q + d, n), decayed, for_q);
        if (delta) for_k = fma(load_n(k + d, n), decayed, for_k);
      });
      coefficients_[j] = op_.q_scale * reduce_add(for_q);
      if (delta) coefficients_[kPage + j] = reduce_add(for_k);
    }
  }

  void run_head(int64_t head) const {
    const int64_t dk = op_.dk, dv = op_.dv;
    const bool delta = op_.write == ScanWrite::delta;
    const int64_t n_sums = delta ? 2 * n_ : n_;
    float dts[kPage];
    sum_decays(head, dts);

    // What q (and k) find in the state, for all tokens at once.
    for_lanes(0, n_sums * dv, [&](int64_t i, int n) { store_n(sums_ + i, zero(), n); });
    if (page_index_ > 0) {
      for (int64_t i = 0; i < n_sums; ++i) {
        const float* from = (i < n_ ? op_.q : op_.k).f32(row_ + i % n_) + key_head_ * dk;
        const float* g = decays(head, page_) + (start_ + i % n_) * n_decays_;
        const F scale = set1(i < n_ ? op_.q_scale : 1.0f), one = exp(set1(*g));
        for_lanes(0, dk, [&](int64_t d, int n) {
          store_n(query_ + i * dk + d, mul(mul(n_decays_ == 1 ? one : exp(load_n(g + d, n)), scale), load_n(from + d, n)), n);
        });
      }
      add_rows({sums_, dv, query_, dk, n_sums}, state(head, page_), dk, dv);
    }

    const float skip = op_.skip ? op_.skip.f32()[head] : 0.0f;
    for (int64_t i = 0; i < n_; ++i) {
      const int64_t n_before = start_ + i;
      coefficients(head, i, n_before + 1);
      float *y = sums_ + i * dv, *u = writes(head, page_) + n_before * dv;
      const float* v = op_.v.f32(row_ + i) + head * dv;
      add_rows({y, n_ * dv, coefficients_, kPage, delta ? 2 : 1}, writes(head, page_), n_before, dv);
      const F dt = set1(op_.write == ScanWrite::stepped ? dts[i] : 1.0f);
      const F beta = delta ? mul(set1(op_.beta_scale), sigmoid(set1(op_.beta.f32(row_ + i)[head]))) : zero();
      const F own = set1(coefficients_[n_before]), skipped = set1(skip);
      float* out = op_.out.f32(row_ + i) + head * dv;
      for_lanes(0, dv, [&](int64_t e, int n) {
        const F value = load_n(v + e, n);
        const F written = delta ? mul(beta, sub(value, load_n(y + n_ * dv + e, n))) : mul(dt, value);
        store_n(u + e, written, n);
        store_n(out + e, fma(skipped, value, fma(own, written, load_n(y + e, n))), n);
      });
    }
  }

  const LinearScan& op_;
  const StepSeq& seq_;
  const int32_t* pages_;
  const int64_t first_position_, key_head_, n_decays_;
  float *query_, *sums_, *turned_, *products_, *coefficients_;       // [128][dk], [128][dv], [dk][64], [128][64], [2][64]
  int64_t row_ = 0, n_ = 0, page_index_ = 0, page_ = 0, start_ = 0;  // of the run of tokens in one page
};

}  // namespace

void linear_scan(const LinearScan& op, Lane& lane) {
  const int64_t sharing = op.n_heads / op.n_k_heads, runs = (sharing + kHeadsOfUnit - 1) / kHeadsOfUnit;
  auto* scratch = reinterpret_cast<float*>(lane.own.data());
  lane.share(static_cast<int64_t>(lane.step->seqs().size()) * op.n_k_heads * runs, 1, [&](int64_t first, int64_t last) {
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t run = unit % runs, key_head = unit / runs % op.n_k_heads, seq = unit / runs / op.n_k_heads;
      const int64_t head = key_head * sharing + run * kHeadsOfUnit;
      Unit(op, *lane.step, lane.step->seqs().data()[seq], key_head, scratch).run(head, std::min(head + kHeadsOfUnit, (key_head + 1) * sharing));
    }
  });
}

// 8 MiB is the least that a worker has.
bool fits_scan(const LinearScan& op) { return op.kv.page_size == kPage && 4 * Unit::scratch_floats(op.dk, op.dv) <= int64_t{8} << 20; }

}  // namespace ridge::cpu::RIDGE_ISA_NS
