#include "kv/prefix_tree.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "kv/prefix_node.h"

namespace ridge {
namespace {

constexpr int kSiblingsLookedAt = 8, kRootsLookedAt = 16;

// Adds the time until it goes to a sum.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~Timed() { sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& sum_;
  std::chrono::steady_clock::time_point start_;
};

std::vector<int64_t> page_bytes_of(const KvCache& kv) {
  std::vector<int64_t> bytes;
  for (int g = 0; g < kv.n_groups(); ++g) bytes.push_back(kv.page_bytes(g));
  return bytes;
}

std::string root_key(const std::string& key, int rope_class) { return fmt::format("{}/{}", rope_class, key); }

int n_pages_there(const PrefixNode& node) {
  int n = 0;
  for (size_t g = 0; g < node.pages.size(); ++g) n += node.has(int(g));
  return n;
}

}  // namespace

// Nodes from below the root on that agree with some tokens: all of their tokens, but for the last node, n_last of it.
struct PrefixTree::Path {
  std::vector<PrefixNode*> nodes;
  int n_last = 0, page_size = 0;
  int n_matched() const { return nodes.empty() ? 0 : (int(nodes.size()) - 1) * page_size + n_last; }
};

PrefixTree::PrefixTree(KvCache& kv, PrefixTreeOptions options)
    : kv_(kv), options_(std::move(options)), page_size_(kv.page_size()), n_groups_(kv.n_groups()), host_(page_bytes_of(kv), options_.swap_bytes),
      ends_(std::make_unique<PrefixNode>()) {
  ends_->ahead = ends_->behind = ends_.get();
  figures_.on = options_.shared;
  figures_.page_size = page_size_;
}

// One by one: a tree is as deep as its longest text.
PrefixTree::~PrefixTree() {
  for (const auto& [name, root] : roots_) root->n_pins++;
  while (ends_->ahead != ends_.get()) {
    ends_->ahead->n_pins = 0;
    remove(*ends_->ahead);
  }
}

PrefixNode& PrefixTree::root_of(const std::string& key, int rope_class) {
  std::string name = root_key(key, rope_class);
  std::unique_ptr<PrefixNode>& root = roots_[name];
  if (!root) {
    root = std::make_unique<PrefixNode>();
    root->hash = std::hash<std::string>{}(name);
    root->key = std::move(name);
  }
  return *root;
}

PrefixNode* PrefixTree::find_root(const std::string& key, int rope_class) const {
  const auto found = roots_.find(root_key(key, rope_class));
  return found == roots_.end() ? nullptr : found->second.get();
}

void PrefixTree::walk(Path& path, PrefixNode* node, Tokens tokens) const {
  path.page_size = page_size_;
  while (node && !tokens.empty()) {
    const auto at = first_not_before(node->children, tokens.first(std::min(tokens.size(), size_t(page_size_))));
    // Siblings that begin most alike are neighbours: of those the one that holds the most.
    PrefixNode* best = nullptr;
    int n_best = 0;
    const auto look = [&](PrefixNode& child) {
      const int n = common_length(child.tokens, tokens);
      if (n > n_best || (n == n_best && n > 0 && n_pages_there(child) > n_pages_there(*best))) best = &child, n_best = n;
      return n >= n_best && n > 0;
    };
    int n_looked = 0;
    for (auto i = at; i != node->children.end() && n_looked++ < kSiblingsLookedAt && look(**i) && n_best < page_size_; ++i) {}
    n_looked = 0;
    for (auto i = at; i != node->children.begin() && n_looked++ < kSiblingsLookedAt && n_best < page_size_ && look(**--i);) {}
    if (!best) return;
    path.nodes.push_back(best);
    path.n_last = n_best;
    if (n_best < page_size_) return;
    node = best;
    tokens = tokens.subspan(size_t(page_size_));
  }
}

// The longest prefix of at most n_most tokens for which every group holds what comes after it sees.
int PrefixTree::usable(const Path& path, int n_most, bool on_device) const {
  const int n_nodes = int(path.nodes.size());
  std::vector<int> missing(size_t(n_groups_) * (n_nodes + 1), 0);        // [group][i]: pages of nodes [0, i) that are not there
  for (int g = 0; g < n_groups_; ++g)
    for (int i = 0; i < n_nodes; ++i) {
      const bool there = on_device ? path.nodes[i]->pages[g] >= 0 : path.nodes[i]->has(g);
      missing[g * (n_nodes + 1) + i + 1] = missing[g * (n_nodes + 1) + i] + !there;
    }
  // The longest end inside a page is the easiest one: of a window it needs the fewest pages.
  for (int last = n_nodes - 1; last >= 0; --last) {
    const int n = std::min(n_most, last + 1 < n_nodes ? (last + 1) * page_size_ : path.n_matched());
    const int n_copied = n - last * page_size_;
    if (n_copied < page_size_ && n_copied < kLeastCopied) continue;
    bool all = true;
    for (int g = 0; g < n_groups_ && all; ++g) {
      const int* const gone = &missing[g * (n_nodes + 1)];
      const UnseenPages unseen = kv_.unseen(g, n);
      const int first = std::min(unseen.first, last + 1), next = std::min(std::max(unseen.last, first), last + 1);
      all = gone[first] == 0 && gone[last + 1] == gone[next];
    }
    if (all) return n;
  }
  return 0;
}

int PrefixTree::match(const PrefixPlace& place, int rope_class, Tokens tokens) {
  const Timed timed(figures_.seconds);
  Path path;
  walk(path, find_root(place.key, rope_class), tokens);
  return usable(path, int(tokens.size()) - 1);
}

int PrefixTree::adopt(Track& track, PrefixPlace& place, Tokens tokens, bool counted) {
  CHECK(!place.node && track.n_computed == 0);
  const Timed timed(figures_.seconds);
  Path path;
  walk(path, find_root(place.key, track.rope_class), tokens);
  int n = usable(path, int(tokens.size()) - 1);
  if (counted) count(path, place.key, track.rope_class, tokens, n);
  // Where prompts part, the next one may too: the pages that will hold the windows and states of that place are to stay.
  place.n_parted = path.n_matched();
  if (path.n_matched() > n) path.nodes.back()->marked = true;
  if (n == 0) return 0;
  touch(path.nodes.back());
  for (PrefixNode* node : path.nodes) node->wanted = false;

  // While pages are made free for copies, those of the path must stay.
  std::vector<std::pair<int, int32_t>> kept;
  const auto keep = [&](int g, int32_t page) {
    kv_.share(g, page);
    kept.emplace_back(g, page);
  };
  path.nodes.back()->n_pins++;
  for (int g = 0; g < n_groups_; ++g)
    for (const PrefixNode* node : path.nodes)
      if (node->pages[g] >= 0) keep(g, node->pages[g]);
  for (int g = 0; g < n_groups_; ++g) {
    const UnseenPages unseen = kv_.unseen(g, n);
    for (int i = 0; i * page_size_ < n; ++i) {
      PrefixNode& node = *path.nodes[i];
      if (node.pages[g] >= 0 || !node.host[g] || (i >= unseen.first && i < unseen.last)) continue;
      if (!swap_in(node, g)) continue;
      keep(g, node.pages[g]);
    }
  }
  n = usable(path, n, true);
  for (int g = 0; g < n_groups_; ++g)
    if (n % page_size_ != 0 && kv_.n_free_pages(g) == 0 && evict(g, 1) == 0) n = usable(path, n / page_size_ * page_size_, true);
  if (n > 0) {
    Track view{.n_computed = n, .rope_class = track.rope_class, .pages = std::vector<PageTable>(size_t(n_groups_))};
    for (int g = 0; g < n_groups_; ++g)
      for (int i = 0; i * page_size_ < n; ++i) view.pages[g].push_back(path.nodes[i]->pages[g]);
    CHECK(kv_.fork(track, view, n));
  }
  for (const auto& [g, page] : kept) kv_.drop(g, page);
  path.nodes.back()->n_pins--;
  if (n >= page_size_) pin(place, path.nodes[n / page_size_ - 1], n / page_size_);
  return n;
}

void PrefixTree::count(const Path& path, const std::string& key, int rope_class, Tokens tokens, int n_found) {
  figures_.n_lookups++;
  figures_.n_lookup_tokens += int64_t(tokens.size());
  figures_.n_hit_tokens += n_found;
  figures_.n_hits += n_found > 0;
  const int n_most = int(tokens.size()) - 1;
  if (n_found >= n_most) return;
  const auto reason = size_t(why_no_more(path, key, rope_class, tokens, n_found));
  figures_.missed_tokens[reason] += n_most - n_found;
  if (n_found == 0) figures_.misses[reason]++;
}

MissReason PrefixTree::why_no_more(const Path& path, const std::string& key, int rope_class, Tokens tokens, int n_found) const {
  const int n_matched = std::min(path.n_matched(), int(tokens.size()) - 1);
  if (n_matched >= n_found + kLeastCopied) return MissReason::window_gone;
  const PrefixNode* const root = find_root(key, rope_class);
  const size_t n_whole = size_t(path.n_matched() / page_size_);
  const uint64_t before = n_whole > 0 ? path.nodes[n_whole - 1]->hash : root ? root->hash : std::hash<std::string>{}(root_key(key, rope_class));
  const Tokens rest = tokens.subspan(n_whole * size_t(page_size_));
  if (rest.size() >= size_t(page_size_) && evicted_.contains(hash_on(before, rest.first(size_t(page_size_))))) return MissReason::evicted;
  if (n_found > 0) return MissReason::nothing_cached;
  int n_looked = 0;
  for (const auto& [name, other] : roots_) {
    if (other.get() == root) continue;
    if (n_looked++ == kRootsLookedAt) break;
    Path there;
    walk(there, other.get(), tokens.first(std::min(tokens.size(), size_t(page_size_))));
    if (there.n_matched() >= kLeastCopied) return MissReason::other_key;
  }
  return MissReason::nothing_cached;
}

// The child with these tokens, made where there is none; of a block that is not full, one that begins with them will do.
PrefixNode& PrefixTree::child_for(PrefixNode& parent, Tokens block) {
  auto at = first_not_before(parent.children, block);
  if (at != parent.children.end() && common_length((*at)->tokens, block) == int(block.size())) return **at;
  if (at != parent.children.begin()) {
    PrefixNode& before = **std::prev(at);
    if (common_length(before.tokens, block) == int(before.tokens.size())) {
      // A leaf that ends in the middle of the block: what it lacks is here now.
      for (int g = 0; g < n_groups_; ++g) drop_page(before, g), drop_host(before, g);
      figures_.n_tokens += int64_t(block.size() - before.tokens.size());
      before.tokens.assign(block.begin(), block.end());
      before.hash = hash_on(parent.hash, block);
      return before;
    }
  }
  auto made = std::make_unique<PrefixNode>();
  made->parent = &parent;
  made->depth = parent.depth + 1;
  made->tokens.assign(block.begin(), block.end());
  made->hash = hash_on(parent.hash, block);
  PrefixNode& node = *made;
  parent.children.insert(at, std::move(made));
  if (parent.parent) link_behind(node, parent);
  else link_behind(node, *ends_);
  figures_.n_nodes++;
  figures_.n_tokens += int64_t(block.size());
  return node;
}

// Page `index` of the track goes to the node, or the node's to the track.
void PrefixTree::take_pages(PrefixNode& node, Track& track, int index, bool whole) {
  for (int g = 0; g < n_groups_; ++g) {
    int32_t& own = track.pages[g][index];
    if (own < 0 || own == node.pages[g]) continue;
    if (node.pages[g] < 0) {
      drop_host(node, g);
      kv_.share(g, own);
      node.pages[g] = own;
    } else if (whole) {
      kv_.share(g, node.pages[g]);
      kv_.drop(g, own);
      own = node.pages[g];
    }
  }
}

void PrefixTree::pin(PrefixPlace& place, PrefixNode* node, int n_pages) {
  node->n_pins++;
  if (place.node) place.node->n_pins--;
  place.node = node;
  place.n_pages = n_pages;
}

void PrefixTree::enter(Track& track, PrefixPlace& place, Tokens tokens, int n_turn) {
  if (place.n_pages == track.n_computed / page_size_) return;
  const Timed timed(figures_.seconds);
  enter_whole(track, place, tokens, n_turn);
}

void PrefixTree::enter_whole(Track& track, PrefixPlace& place, Tokens tokens, int n_turn) {
  const int n_whole = track.n_computed / page_size_;
  if (!place.node) pin(place, &root_of(place.key, track.rope_class), 0);
  for (int i = place.n_pages; i < n_whole; ++i) {
    PrefixNode& node = child_for(*place.node, tokens.subspan(size_t(i) * page_size_, size_t(page_size_)));
    take_pages(node, track, i, true);
    node.marked |= (n_turn - 1) / page_size_ == i || (place.n_parted > 0 && (place.n_parted - 1) / page_size_ == i);
    pin(place, &node, i + 1);
  }
}

void PrefixTree::enter_all(Track& track, PrefixPlace& place, Tokens tokens, int n_turn) {
  if (track.n_computed == 0) return;
  const Timed timed(figures_.seconds);
  enter_whole(track, place, tokens, n_turn);
  const int n_rest = track.n_computed % page_size_;
  if (n_rest >= kLeastCopied) {
    PrefixNode& node = child_for(*place.node, tokens.subspan(size_t(place.n_pages) * page_size_, size_t(n_rest)));
    if (int(node.tokens.size()) == n_rest) take_pages(node, track, place.n_pages, false);
    node.marked = true;
    touch(&node);
  } else {
    place.node->marked = true;
    touch(place.node);
  }
}

void PrefixTree::leave(PrefixPlace& place) {
  if (!place.node) return;
  PrefixNode* const node = std::exchange(place.node, nullptr);
  place.n_pages = 0;
  node->n_pins--;
  if (!node->parent) remove_root_if_unused(*node);
}

void PrefixTree::want_back(PrefixPlace& place) {
  if (host_.max_bytes() > 0 && place.node) {
    for (const auto& child : place.node->children)
      if (int(child->tokens.size()) < page_size_) child->wanted = true;     // its partly filled page may be among them
    for (PrefixNode* node = place.node; node->parent; node = node->parent) node->wanted = true;
  }
  leave(place);
}

void PrefixTree::forget(const PrefixPlace& place) {
  CHECK(!place.node && !options_.shared);
  std::vector<PrefixNode*> roots;
  for (const auto& [name, root] : roots_)
    if (name.ends_with(fmt::format("/{}", place.key))) roots.push_back(root.get());
  for (PrefixNode* root : roots)
    for (size_t n = root->children.size(); n > 0; --n) remove(*root->children.back());      // the root goes with the last one
}

PrefixReport PrefixTree::report() const {
  PrefixReport report = figures_;
  report.swapped_bytes = host_.used_bytes();
  const auto held_pages = held();
  for (int g = 0; g < n_groups_; ++g) {
    PrefixReport::Group group{.n_pages = kv_.n_pages(g), .n_free = kv_.n_free_pages(g), .n_held = int(held_pages[g].size()), .n_cached = 0, .n_shared = 0};
    std::vector<bool> in_tree(size_t(kv_.n_pages(g)), false);
    for (const int32_t page : held_pages[g]) in_tree[size_t(page)] = true;
    for (int32_t page = 0; page < kv_.n_pages(g); ++page) {
      const int n_sequences = kv_.n_refs(g, page) - in_tree[size_t(page)];
      group.n_cached += in_tree[size_t(page)] && n_sequences == 0;
      group.n_shared += n_sequences > 1;
    }
    report.groups.push_back(group);
  }
  return report;
}

std::vector<std::vector<int32_t>> PrefixTree::held() const {
  std::vector<std::vector<int32_t>> pages(static_cast<size_t>(n_groups_));
  for (const PrefixNode* node = ends_->behind; node != ends_.get(); node = node->behind)
    for (int g = 0; g < n_groups_; ++g)
      if (node->pages[g] >= 0) pages[g].push_back(node->pages[g]);
  return pages;
}

void PrefixTree::check_integrity() const {
  std::unordered_set<const PrefixNode*> seen;
  int64_t n_tokens = 0;
  for (const PrefixNode* node = ends_->behind; node != ends_.get(); node = node->behind) {
    CHECK(node->ahead->behind == node && node->behind->ahead == node);
    CHECK(node->parent);
    CHECK(!node->parent->parent || seen.contains(node->parent));       // who is above is ahead
    CHECK(seen.insert(node).second);
    CHECK(int(node->tokens.size()) == page_size_ || (node->is_leaf() && node->n_pins == 0 && !node->tokens.empty()));
    const auto& siblings = node->parent->children;
    const auto self = std::find_if(siblings.begin(), siblings.end(), [&](const auto& s) { return s.get() == node; });
    CHECK(self != siblings.end());
    if (self != siblings.begin()) {
      const auto& before = (*std::prev(self))->tokens;
      CHECK(before < node->tokens);
      CHECK_LT(common_length(before, node->tokens), int(before.size()));
    }
    for (int g = 0; g < n_groups_; ++g) CHECK(node->pages[g] < 0 || !node->host[g]);
    n_tokens += int64_t(node->tokens.size());
  }
  CHECK_EQ(int64_t(seen.size()), figures_.n_nodes);
  CHECK_EQ(n_tokens, figures_.n_tokens);
  for (const auto& [name, root] : roots_) CHECK(name == root->key && (!root->is_leaf() || root->n_pins > 0));
}

}  // namespace ridge
