// The prefix cache: a radix tree over tokens that holds pages by reference, so that what one sequence computed serves all that begin alike.
//
//   root, one per key (adapter, salt, rope class)
//    └─ node: a block of page_size tokens (a leaf may have fewer) and, for every KV group, the page that holds them (or -1)
//
// A sequence enters its pages as soon as they are computed. A hit is counted in tokens: whole pages are shared, the one in which the prompts part is copied.
// It is the longest one for which every group holds what a query from there on sees: all pages of full layers, those of the window, the one page of a
// recurrent state, whose checkpoint and entries can make the state at any of its positions.
// Memory that is wanted comes from what was least recently used: of full layers whole leaves; of windows and states single pages, first those that lie neither
// before a turn's end, nor before a place where prompts parted, nor at a multiple of kSnapshotEvery tokens. What a preempted sequence needs again may go to host memory instead.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kv/cache.h"
#include "kv/host_pages.h"
#include "kv/prefix_place.h"
#include "kv/prefix_report.h"

namespace ridge {

struct PrefixTreeOptions {
  bool shared = true;                        // false: it only keeps what preempted sequences will want back
  int64_t swap_bytes = 0;                    // of host memory
  std::function<bool(int64_t n_bytes, int n_tokens)> swap_pays;      // moving so many bytes there and back is cheaper than computing the tokens; empty: always
};

class PrefixTree {
 public:
  static constexpr int kSnapshotEvery = 512;
  static constexpr int kLeastCopied = 8;     // tokens for which a page is copied: below, computing them costs as much
  PrefixTree(KvCache& kv, PrefixTreeOptions options = {});
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  bool shared() const { return options_.shared; }
  // KvCache::reserve, for which cached pages are given up when there are too few free ones.
  [[nodiscard]] bool reserve(Track& track, int n_tokens);

  // Tokens that adopt would find. Changes nothing.
  int match(const PrefixPlace& place, int rope_class, std::span<const int32_t> tokens);
  // Takes the longest cached prefix into the empty track, all tokens but the last at most, and says how long it is. `counted`: the figures know of it.
  int adopt(Track& track, PrefixPlace& place, std::span<const int32_t> tokens, bool counted);

  // Enters the whole pages that were computed since the last time, before release_unseen gives them back. Pages that the tree has already replace the
  // track's own, whose content is the same. A turn ends after n_turn tokens.
  void enter(Track& track, PrefixPlace& place, std::span<const int32_t> tokens, int n_turn);
  // The same with the partly filled last page, into which the sequence may go on writing.
  void enter_all(Track& track, PrefixPlace& place, std::span<const int32_t> tokens, int n_turn);
  void leave(PrefixPlace& place);            // the sequence ended or starts anew; its pages stay
  void want_back(PrefixPlace& place);        // leave, of a sequence that was preempted: what it entered is worth a swap
  void forget(const PrefixPlace& place);     // drops all that is under the key of a sequence that has left, where nothing is shared

  int64_t flush();                           // all that no running sequence stands on; returns the number of pages dropped
  PrefixReport report() const;
  double copy_bytes_per_second() const;      // to and from the host, as measured; a guess before the first
  std::vector<std::vector<int32_t>> held() const;      // pages by group, for KvCache::check_integrity
  void check_integrity() const;              // of the tree itself

 private:
  struct Path;
  using Tokens = std::span<const int32_t>;
  PrefixNode& root_of(const std::string& key, int rope_class);
  PrefixNode* find_root(const std::string& key, int rope_class) const;
  void walk(Path& path, PrefixNode* root, Tokens tokens) const;
  int usable(const Path& path, int n_most, bool on_device = false) const;
  void count(const Path& path, const std::string& key, int rope_class, Tokens tokens, int n_found);
  MissReason why_no_more(const Path& path, const std::string& key, int rope_class, Tokens tokens, int n_found) const;
  void enter_whole(Track& track, PrefixPlace& place, Tokens tokens, int n_turn);
  PrefixNode& child_for(PrefixNode& parent, Tokens block);
  void take_pages(PrefixNode& node, Track& track, int index, bool whole);
  void pin(PrefixPlace& place, PrefixNode* node, int n_pages);

  // prefix_eviction.cpp
  int evict(int group, int n_wanted);
  bool give_up_leaf(PrefixNode& node, int group);
  bool give_up_page(PrefixNode& node, int group);
  bool is_worth_keeping(const PrefixNode& node, int group) const;
  void remember(const PrefixNode& node);
  bool swap_out(PrefixNode& node);
  bool swap_in(PrefixNode& node, int group);
  bool make_host_room(int64_t n_bytes);
  void copy(std::byte* to, const std::byte* from, int64_t n_bytes);
  void drop_page(PrefixNode& node, int group);
  void drop_host(PrefixNode& node, int group);
  void remove(PrefixNode& node);             // with all below it
  void remove_root_if_unused(PrefixNode& root);
  void link_behind(PrefixNode& node, PrefixNode& ahead);
  void unlink(PrefixNode& node);
  void touch(PrefixNode* node);              // it and those above it become the newest

  KvCache& kv_;
  PrefixTreeOptions options_;
  int page_size_, n_groups_;
  HostPages host_;
  std::unordered_map<std::string, std::unique_ptr<PrefixNode>> roots_;
  std::unique_ptr<PrefixNode> ends_;         // of the list by use: behind it is the newest, ahead of it the oldest. Who is above another is ahead of it
  std::vector<uint64_t> evicted_ring_;       // blocks that were evicted lately, by the hash of all tokens up to their end
  std::unordered_set<uint64_t> evicted_;
  size_t next_evicted_ = 0;
  PrefixReport figures_;
  double copied_bytes_ = 0, copy_seconds_ = 0;
};

}  // namespace ridge
