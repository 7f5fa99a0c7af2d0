// The entries that a token's index heads score best. Scores come by tiles of 64 entries, C[64][heads] = K Q^T, then a weighted sum of what is positive in a row of
// C; a heap keeps the best so far. Which entries are the best does not depend on the order they come in, so several workers may each search a part.
#include "backend/top_k.h"
#include "cpu/kernels/attention_tile.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/kv_rows.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kTile = 64, kPart = 1024;

using Candidate = Scored;
inline bool worse(const Candidate& a, const Candidate& b) { return a.score < b.score || (a.score == b.score && a.entry > b.entry); }

// The best `capacity` candidates; the worst of them is on top.
class Best {
 public:
  Best(Candidate* memory, int capacity) : heap_(memory), capacity_(capacity) {}
  int size() const { return n_; }
  const Candidate* begin() const { return heap_; }
  void offer(Candidate c) {
    if (n_ == capacity_) {
      if (worse(heap_[0], c)) sink(0, c);
      return;
    }
    int i = n_++;
    for (; i > 0 && worse(c, heap_[(i - 1) / 2]); i = (i - 1) / 2) heap_[i] = heap_[(i - 1) / 2];
    heap_[i] = c;
  }

 private:
  void sink(int i, Candidate c) {
    for (;;) {
      int child = 2 * i + 1;
      if (child >= n_) break;
      if (child + 1 < n_ && worse(heap_[child + 1], heap_[child])) ++child;
      if (!worse(heap_[child], c)) break;
      heap_[i] = heap_[child];
      i = child;
    }
    heap_[i] = c;
  }
  Candidate* heap_;
  int capacity_, n_ = 0;
};

class Search {
 public:
  Search(const IndexTopK& op, const Step& step, std::byte* memory) : op_(op), step_(step), stride_(round16(op.head_dim)), columns_(round16(op.n_heads)) {
    auto* p = reinterpret_cast<float*>(memory);
    const auto take = [&p](int64_t n) { return (p += n) - n; };
    q_ = take(op.head_dim * columns_);
    rows_ = take(kTile * stride_);
    c_ = take(kTile * columns_);
    weights_ = take(columns_);
    heap_ = reinterpret_cast<Candidate*>(p);
  }
  static int64_t n_bytes(const IndexTopK& op) {
    const int64_t columns = round16(op.n_heads);
    return 4 * (op.head_dim * columns + kTile * (round16(op.head_dim) + columns) + columns) + 8 * op.selected.cols;
  }

  Best best() const { return Best(heap_, static_cast<int>(op_.selected.cols)); }
  int entries_of(int64_t t) const { return (step_.positions().data()[t] + 1) / op_.kv.planes[0].every; }

  void begin(int64_t t) {
    seq_ = &step_.seqs().data()[step_.seq_of().data()[t]];
    queries_as_columns(q_, op_.q.f32(t), op_.head_dim, 0, op_.n_heads, columns_);
    for (int64_t h = 0; h < columns_; ++h) weights_[h] = h < op_.n_heads ? op_.weights.f32(t)[h] : 0.0f;
  }

  // Calls take(score, entry) for the entries [first, last).
  template <class Take>
  void score(int first, int last, Take&& take) {
    for (int base = first; base < last; base += kTile) {
      const int n = last - base < kTile ? last - base : kTile;
      for (int i = 0; i < n; ++i) read_row(rows_ + i * stride_, kv_row(op_.kv, step_, *seq_, base + i), op_.kv.planes[0].format, op_.head_dim);
      Product<KvF32>{c_, columns_, rows_, stride_, q_, columns_, 16, op_.head_dim, false}.run(n, static_cast<int>(columns_ / 16));
      for (int i = 0; i < n; ++i) {
        F sum = zero();
        for (int64_t h = 0; h < columns_; h += 16) sum = fma(load(weights_ + h), max(load(c_ + i * columns_ + h), zero()), sum);
        take(reduce_add(sum), base + i);
      }
    }
  }

  void scan(Best& best, int first, int last) {
    score(first, last, [&](float s, int entry) { best.offer({s, entry}); });
  }

  // All entries of the sequence are sorted, those to come below every other.
  void choose_with_hindsight(int64_t t) {
    const int n = entries_of(t), n_all = seq_->n_known / op_.kv.planes[0].every, top_k = static_cast<int>(op_.selected.cols);
    score(0, n, [&](float s, int entry) { heap_[entry] = {s, entry}; });
    for (int i = n; i < n_all; ++i) heap_[i] = {-__builtin_inff(), i};
    select_top_k({heap_, static_cast<size_t>(n_all)}, top_k);
    int n_chosen = 0;
    for (int i = 0; i < n_all && i < top_k; ++i)
      if (heap_[i].entry < n) heap_[n_chosen++] = heap_[i];
    finish(t, heap_, n_chosen);
  }

  // Entries of the best, ascending, then -1.
  void finish(int64_t t, const Candidate* best, int n) const {
    auto* out = op_.selected.row_as<int32_t>(t);
    for (int i = 0; i < n; ++i) out[i] = best[i].entry;
    for (int64_t i = n; i < op_.selected.cols; ++i) out[i] = -1;
    for (const int gap : {1750, 701, 301, 132, 57, 23, 10, 4, 1})
      for (int i = gap; i < n; ++i) {
        const int32_t entry = out[i];
        int j = i;
        for (; j >= gap && out[j - gap] > entry; j -= gap) out[j] = out[j - gap];
        out[j] = entry;
      }
  }

 private:
  const IndexTopK& op_;
  const Step& step_;
  const int64_t stride_, columns_;
  float *q_, *rows_, *c_, *weights_;
  Candidate* heap_;
  const StepSeq* seq_ = nullptr;
};

}  // namespace

bool fits_index_top_k(const IndexTopK& op) { return Search::n_bytes(op) <= int64_t{6} << 20; }

void index_top_k(const IndexTopK& op, Lane& lane) {
  Search search(op, *lane.step, lane.own.data());
  const int64_t n_rows = op.q.rows, top_k = op.selected.cols, slot = 16 + 8 * top_k;      // bytes: how many, then candidates
  if (op.with_hindsight) {
    lane.share(n_rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        search.begin(t);
        search.choose_with_hindsight(t);
      }
    });
    return;
  }
  if (lane.n_workers == 1 || n_rows >= 2 * lane.n_workers || n_rows * lane.n_workers * slot > static_cast<int64_t>(lane.shared.size())) {
    lane.share(n_rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        Best best = search.best();
        search.begin(t);
        search.scan(best, 0, search.entries_of(t));
        search.finish(t, best.begin(), best.size());
      }
    });
    return;
  }

  // Few tokens: each worker searches its parts of every token's entries, and one worker a token puts the findings together.
  const auto slot_of = [&](int64_t t, int worker) { return lane.shared.data() + (t * lane.n_workers + worker) * slot; };
  for (int64_t t = 0; t < n_rows; ++t) {
    Best best = search.best();
    search.begin(t);
    const auto [first, last] = lane.part(search.entries_of(t), kPart);
    search.scan(best, static_cast<int>(first), static_cast<int>(last));
    std::byte* out = slot_of(t, lane.worker);
    *reinterpret_cast<int32_t*>(out) = best.size();
    for (int i = 0; i < best.size(); ++i) reinterpret_cast<Candidate*>(out + 16)[i] = best.begin()[i];
  }
  lane.barrier();
  const auto [first, last] = lane.part(n_rows);
  for (int64_t t = first; t < last; ++t) {
    Best best = search.best();
    for (int w = 0; w < lane.n_workers; ++w) {
      const std::byte* in = slot_of(t, w);
      for (int i = 0; i < *reinterpret_cast<const int32_t*>(in); ++i) best.offer(reinterpret_cast<const Candidate*>(in + 16)[i]);
    }
    search.finish(t, best.begin(), best.size());
  }
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
