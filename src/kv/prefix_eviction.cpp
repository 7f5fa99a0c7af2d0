// What the prefix tree gives up when memory is wanted, in order of use: see prefix_tree.h.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "kv/prefix_node.h"
#include "kv/prefix_tree.h"

namespace ridge {
namespace {

constexpr size_t kRememberedEvictions = 4096;

bool sees_everything(const KvSpec& spec) { return spec.kind == KvKind::attention && spec.window == 0; }

}  // namespace

bool PrefixTree::reserve(Track& track, int n_tokens) {
  if (kv_.reserve(track, n_tokens)) return true;
  const auto start = std::chrono::steady_clock::now();
  const int n_pages = (n_tokens + page_size_ - 1) / page_size_;
  bool enough = true;
  for (int g = 0; g < n_groups_ && enough; ++g) {
    const int n_missing = n_pages - int(track.pages[g].size()) - kv_.n_free_pages(g);
    enough = n_missing <= 0 || evict(g, n_missing) >= n_missing;
  }
  figures_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return enough && kv_.reserve(track, n_tokens);
}

// Frees pages of a group, n_wanted at least or as many as there are, and says how many.
int PrefixTree::evict(int group, int n_wanted) {
  const bool by_leaf = sees_everything(kv_.spec(group));
  int n = 0;
  // A few more than wanted, so that the list is not walked for every page of a long prompt.
  const int n_most = std::max(n_wanted, std::min(16, kv_.n_pages(group) / 64));
  for (const bool any : {by_leaf, true}) {
    for (PrefixNode* node = ends_->ahead; node != ends_.get() && n < n_most;) {
      PrefixNode& here = *node;
      node = node->ahead;
      const int32_t page = here.pages[group];
      if (page >= 0 && kv_.n_refs(group, page) == 1 && (any || !is_worth_keeping(here, group))) n += by_leaf ? give_up_leaf(here, group) : give_up_page(here, group);
      else if (here.is_leaf() && here.n_pins == 0 && here.is_empty()) remove(here);
    }
    if (n >= n_wanted || by_leaf) break;
  }
  return n;
}

// Of layers that see everything a page is of no use without those before it: leaves go first, with the pages of all groups.
bool PrefixTree::give_up_leaf(PrefixNode& node, int group) {
  if (node.n_pins > 0) return false;
  for (const auto& child : node.children)
    if (child->pages[group] >= 0) return false;
  if (swap_out(node)) return true;
  figures_.n_evicted_pages += std::count_if(node.pages.begin(), node.pages.end(), [](int32_t p) { return p >= 0; });
  remember(node);
  remove(node);
  return true;
}

bool PrefixTree::give_up_page(PrefixNode& node, int group) {
  if (swap_out(node)) return true;
  figures_.n_evicted_pages++;
  drop_page(node, group);
  if (node.is_leaf() && node.n_pins == 0 && node.is_empty()) {
    remember(node);
    remove(node);
  }
  return true;
}

// Whether a hit that needs the node's page of a window or a recurrent state is likely.
bool PrefixTree::is_worth_keeping(const PrefixNode& node, int group) const {
  const KvSpec& spec = kv_.spec(group);
  const int n_seen = spec.kind == KvKind::recurrent ? 0 : (spec.window + page_size_ - 1) / page_size_;     // pages behind the node from whose end its page is seen
  const bool snapshots = 2 * n_seen * page_size_ <= kSnapshotEvery;
  const PrefixNode* end = &node;
  for (int i = 0; i <= n_seen; ++i, end = end->children.front().get()) {
    if (end->marked || end->children.size() != 1) return true;
    if (snapshots && end->depth * page_size_ % kSnapshotEvery == 0) return true;
  }
  return false;
}

void PrefixTree::remember(const PrefixNode& node) {
  if (int(node.tokens.size()) < page_size_) return;
  if (evicted_ring_.size() < kRememberedEvictions) {
    evicted_ring_.push_back(node.hash);
  } else {
    evicted_.erase(std::exchange(evicted_ring_[next_evicted_], node.hash));
    next_evicted_ = (next_evicted_ + 1) % kRememberedEvictions;
  }
  evicted_.insert(node.hash);
}

// Moves the pages that are the tree's alone to the host, where a preempted sequence wants them back and that is cheaper than to compute them.
bool PrefixTree::swap_out(PrefixNode& node) {
  if (!node.wanted) return false;
  int64_t n_bytes = 0;
  const auto goes = [&](int g) { return node.pages[g] >= 0 && kv_.n_refs(g, node.pages[g]) == 1; };
  for (int g = 0; g < n_groups_; ++g) n_bytes += goes(g) ? kv_.page_bytes(g) : 0;
  if (options_.swap_pays && !options_.swap_pays(n_bytes, int(node.tokens.size()))) return false;
  if (!make_host_room(n_bytes)) return false;
  for (int g = 0; g < n_groups_; ++g) {
    if (!goes(g)) continue;
    node.host[g] = host_.take(g);
    copy(node.host[g].get(), kv_.page_at(g, node.pages[g]), kv_.page_bytes(g));
    drop_page(node, g);
    figures_.n_swapped_out++;
  }
  return true;
}

bool PrefixTree::swap_in(PrefixNode& node, int group) {
  if (kv_.n_free_pages(group) == 0 && evict(group, 1) == 0) return false;
  node.pages[group] = kv_.take(group);
  copy(kv_.page_at(group, node.pages[group]), node.host[group].get(), kv_.page_bytes(group));
  drop_host(node, group);
  figures_.n_swapped_in++;
  return true;
}

// Pages on the host that nobody waits for any more go first to last; those that somebody does stay.
bool PrefixTree::make_host_room(int64_t n_bytes) {
  if (n_bytes > host_.max_bytes()) return false;
  for (PrefixNode* node = ends_->ahead; node != ends_.get() && !host_.fits(n_bytes); node = node->ahead)
    if (!node->wanted)
      for (int g = 0; g < n_groups_; ++g) drop_host(*node, g);
  return host_.fits(n_bytes);
}

void PrefixTree::copy(std::byte* to, const std::byte* from, int64_t n_bytes) {
  const auto start = std::chrono::steady_clock::now();
  kv_.copy(to, from, n_bytes);
  copy_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  copied_bytes_ += double(n_bytes);
}

double PrefixTree::copy_bytes_per_second() const { return copy_seconds_ > 0 ? copied_bytes_ / copy_seconds_ : 2e9; }

void PrefixTree::drop_page(PrefixNode& node, int group) {
  if (node.pages[group] >= 0) kv_.drop(group, std::exchange(node.pages[group], -1));
}

void PrefixTree::drop_host(PrefixNode& node, int group) {
  if (node.host[group]) host_.give(group, std::move(node.host[group]));
}

void PrefixTree::remove(PrefixNode& node) {
  CHECK_EQ(node.n_pins, 0);
  while (!node.children.empty()) remove(*node.children.back());
  for (int g = 0; g < n_groups_; ++g) drop_page(node, g), drop_host(node, g);
  unlink(node);
  figures_.n_nodes--;
  figures_.n_tokens -= int64_t(node.tokens.size());
  PrefixNode& parent = *node.parent;
  parent.children.erase(std::find_if(parent.children.begin(), parent.children.end(), [&](const auto& child) { return child.get() == &node; }));
  if (!parent.parent) remove_root_if_unused(parent);
}

void PrefixTree::remove_root_if_unused(PrefixNode& root) {
  if (root.is_leaf() && root.n_pins == 0) roots_.erase(std::string(root.key));
}

int64_t PrefixTree::flush() {
  int64_t n_pages = 0;
  for (PrefixNode* node = ends_->ahead; node != ends_.get();) {
    PrefixNode& here = *node;
    node = node->ahead;
    if (!here.is_leaf() || here.n_pins > 0) continue;
    n_pages += std::count_if(here.pages.begin(), here.pages.end(), [](int32_t p) { return p >= 0; });
    remove(here);
  }
  return n_pages;
}

void PrefixTree::link_behind(PrefixNode& node, PrefixNode& ahead) {
  node.ahead = &ahead;
  node.behind = ahead.behind;
  ahead.behind->ahead = &node;
  ahead.behind = &node;
}

void PrefixTree::unlink(PrefixNode& node) {
  node.ahead->behind = node.behind;
  node.behind->ahead = node.ahead;
}

void PrefixTree::touch(PrefixNode* node) {
  for (; node && node->parent; node = node->parent) {
    unlink(*node);
    link_behind(*node, *ends_);
  }
}

}  // namespace ridge
