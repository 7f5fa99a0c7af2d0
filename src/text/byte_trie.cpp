#include "text/byte_trie.h"

#include "base/check.h"

namespace ridge {

size_t ByteTrie::slot_of(uint64_t key) const {
  const size_t mask = edges_.size() - 1;
  size_t slot = (key * 0x9E3779B97F4A7C15ull >> 20) & mask;
  while (edges_[slot].node != 0 && edges_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

void ByteTrie::grow() {
  const auto old = std::move(edges_);
  edges_.assign(old.empty() ? 64 : old.size() * 2, Edge{0, 0});
  for (const Edge& e : old)
    if (e.node != 0) edges_[slot_of(e.key)] = e;
}

void ByteTrie::insert(std::string_view key, int32_t value) {
  CHECK_GE(value, 0);
  int32_t node = kRoot;
  for (const unsigned char byte : key) {
    if ((n_edges_ + 1) * 2 > edges_.size()) grow();
    Edge& e = edges_[slot_of(static_cast<uint64_t>(node) << 8 | byte)];
    if (e.node == 0) {
      e = {static_cast<uint64_t>(node) << 8 | byte, static_cast<int32_t>(values_.size())};
      values_.push_back(kNone);
      ++n_edges_;
    }
    node = e.node;
  }
  if (values_[node] == kNone) values_[node] = value;
}

int32_t ByteTrie::step(int32_t node, unsigned char byte) const {
  if (edges_.empty()) return kNone;
  const Edge& e = edges_[slot_of(static_cast<uint64_t>(node) << 8 | byte)];
  return e.node != 0 ? e.node : kNone;
}

}  // namespace ridge
