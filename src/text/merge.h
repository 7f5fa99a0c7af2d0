// Merging neighbours, best rank first and leftmost among equals, until no pair has a rank: the heart of BPE and of SentencePiece's merging by score.
// A short piece scans its ranks (the arrays stay in L1); a long one takes a heap over a linked list, so that n symbols cost n log n.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace ridge {

struct MergeSymbol {
  int32_t id;                     // token, or whatever the rank function knows the symbol by
  uint32_t begin, n_bytes;        // its place in the piece
  int32_t prev, next;             // -1 at the ends
};

struct Merge {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t rank = kNone;
  int32_t id = -1;                // of the merged symbol
};

class MergeScratch {
 public:
  std::vector<MergeSymbol> symbols;       // in: in order, prev and next need not be set. out: merged, in order.

  template <class Rank>                   // Merge rank(const MergeSymbol& left, const MergeSymbol& right)
  void merge(const Rank& rank) {
    if (symbols.size() < 2) return;
    if (symbols.size() <= kShort) merge_short(rank);
    else merge_long(rank);
  }

 private:
  static constexpr size_t kShort = 40;
  std::vector<Merge> merges_;             // merges_[i]: of symbols i and i + 1
  std::vector<uint64_t> heap_;            // rank << 32 | index of the left symbol

  template <class Rank>
  void merge_short(const Rank& rank) {
    size_t n = symbols.size();
    merges_.resize(n);
    for (size_t i = 0; i + 1 < n; ++i) merges_[i] = rank(symbols[i], symbols[i + 1]);
    while (n > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < n; ++i)
        if (merges_[i].rank < merges_[best].rank) best = i;
      if (merges_[best].rank == Merge::kNone) break;
      symbols[best].id = merges_[best].id;
      symbols[best].n_bytes += symbols[best + 1].n_bytes;
      for (size_t i = best + 1; i + 1 < n; ++i) { symbols[i] = symbols[i + 1]; merges_[i] = merges_[i + 1]; }
      --n;
      if (best > 0) merges_[best - 1] = rank(symbols[best - 1], symbols[best]);
      if (best + 1 < n) merges_[best] = rank(symbols[best], symbols[best + 1]);
    }
    symbols.resize(n);
  }

  template <class Rank>
  void merge_long(const Rank& rank) {
    const auto n = static_cast<int32_t>(symbols.size());
    heap_.clear();
    const auto entry = [&](int32_t left, const Merge& m) { return static_cast<uint64_t>(m.rank) << 32 | static_cast<uint32_t>(left); };
    const auto offer = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const Merge m = rank(symbols[left], symbols[right]);
      if (m.rank == Merge::kNone) return;
      heap_.push_back(entry(left, m));
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
    };
    for (int32_t i = 0; i < n; ++i) {
      symbols[i].prev = i - 1;
      symbols[i].next = i + 1 < n ? i + 1 : -1;
      if (i == 0) continue;
      const Merge m = rank(symbols[i - 1], symbols[i]);
      if (m.rank != Merge::kNone) heap_.push_back(entry(i - 1, m));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>{});
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
      const uint64_t top = heap_.back();
      heap_.pop_back();
      const auto i = static_cast<int32_t>(top & UINT32_MAX);
      MergeSymbol& left = symbols[i];
      if (left.n_bytes == 0 || left.next < 0) continue;
      MergeSymbol& right = symbols[left.next];
      // An entry is out of date when the pair that stands there now has another rank.
      const Merge m = rank(left, right);
      if (m.rank != top >> 32) continue;
      left.id = m.id;
      left.n_bytes += right.n_bytes;
      right.n_bytes = 0;
      left.next = right.next;
      if (right.next >= 0) symbols[right.next].prev = i;
      offer(left.prev, i);
      offer(i, left.next);
    }
    std::erase_if(symbols, [](const MergeSymbol& s) { return s.n_bytes == 0; });
  }
};

}  // namespace ridge
