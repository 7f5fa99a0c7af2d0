// A trie over bytes in one hash table of edges (node * 256 + byte -> node): built once, then walked from any place of a text to list the keys that begin there.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace ridge {

class ByteTrie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;

  void insert(std::string_view key, int32_t value);           // value >= 0; of equal keys the first one stays
  int32_t step(int32_t node, unsigned char byte) const;       // kNone when no key goes on with this byte
  int32_t value(int32_t node) const { return values_[node]; } // kNone when no key ends here
  bool empty() const { return n_edges_ == 0; }

 private:
  struct Edge { uint64_t key; int32_t node; };
  std::vector<Edge> edges_;                                   // open addressing; node 0 (the root, no edge's target) marks a free slot
  std::vector<int32_t> values_{kNone};
  size_t n_edges_ = 0;

  size_t slot_of(uint64_t key) const;
  void grow();
};

}  // namespace ridge
