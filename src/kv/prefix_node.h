// A node of the prefix tree: a block of tokens with its pages, its place among its siblings (in the order of their tokens) and in the list by use.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/step.h"
#include "kv/host_pages.h"

namespace ridge {

struct PrefixNode {
  PrefixNode* parent = nullptr;              // null: a root, which has no tokens and is in no list
  std::string key;                           // of a root
  int depth = 0;                             // blocks from the root on
  std::vector<int32_t> tokens;
  uint64_t hash = 0;                         // of all tokens from the root on
  std::array<int32_t, kMaxKvGroups> pages;   // by group; -1: none
  std::array<HostPages::Page, kMaxKvGroups> host;      // a page is here or there, not in both
  std::vector<std::unique_ptr<PrefixNode>> children;   // sorted by tokens; none is the beginning of another
  int n_pins = 0;                            // sequences that stand here
  bool marked = false;                       // a turn ends in this block, or prompts parted in it
  bool wanted = false;                       // by a sequence that was preempted
  PrefixNode *ahead = nullptr, *behind = nullptr;      // used later and earlier than this one

  PrefixNode() { pages.fill(-1); }
  bool is_leaf() const { return children.empty(); }
  bool has(int group) const { return pages[size_t(group)] >= 0 || host[size_t(group)]; }
  bool is_empty() const { return std::all_of(pages.begin(), pages.end(), [](int32_t p) { return p < 0; }) && std::none_of(host.begin(), host.end(), [](const auto& p) { return bool(p); }); }
};

inline int common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return int(std::mismatch(a.begin(), a.begin() + ptrdiff_t(n), b.begin()).first - a.begin());
}

inline auto first_not_before(std::vector<std::unique_ptr<PrefixNode>>& children, std::span<const int32_t> block) {
  return std::lower_bound(children.begin(), children.end(), block, [](const std::unique_ptr<PrefixNode>& child, std::span<const int32_t> b) {
    return std::lexicographical_compare(child->tokens.begin(), child->tokens.end(), b.begin(), b.end());
  });
}

inline uint64_t hash_on(uint64_t hash, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    hash = (hash ^ uint32_t(token)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace ridge
