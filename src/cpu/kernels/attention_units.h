// How attention is cut into work, whatever the arithmetic of its tiles.
//
// Positions are cut at absolute multiples: tiles (of 64 in f32), and spans of 1024. A span starts from an empty softmax state, and the spans of a query are
// merged in order; so several workers may share one long context, and a query's bits depend on neither the workers nor the batch nor the page size.
//
// A unit of work is up to four blocks of query rows of a sequence x the query heads of one KV head. A block is 32 queries or so, what the first-level cache
// holds beside a strip of K or V; the blocks of a unit share a tile of K and V once it is converted. With fewer units than would keep the workers busy (decoding
// a few long sequences), a unit is cut into its spans, whose states meet in the shared scratch.
#pragma once
#include "backend/op.h"
#include "backend/step.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kSpan = 1024, kMostBlocks = 4;

inline int64_t round16(int64_t n) { return (n + 15) / 16 * 16; }
inline int64_t round32(int64_t n) { return (n + 31) / 32 * 32; }
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
  Units(const PagedAttention& op, const Step& step, int block_queries, int32_t* order, int n_workers) : op_(op), step_(step), order_(order) {
    const int group = op.n_heads / op.n_kv_heads;
    rows_ = max_of(1, block_queries / group);
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

}  // namespace
}  // namespace ridge::cpu::RIDGE_ISA_NS
