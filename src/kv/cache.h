// The KV cache: memory for all layers, in pages. Layers of one KvSpec form a group; a group has a pool of pages with reference counts, and a page holds
// `page_size` positions of every layer in the group. A sequence's Track holds one page table per group, indexed by position / page_size.
// Tracks may share pages; what is written is never shared, because a fork copies the page it would write next.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "kv/layout.h"
#include "kv/page_pool.h"

namespace ridge {

using PageTable = std::vector<int32_t>;      // -1: given back, because no later query sees it

// One model's view of a sequence.
struct Track {
  int n_computed = 0;                        // positions [0, n_computed) are in KV
  int rope_class = 0;
  std::vector<PageTable> pages;              // by group
};

struct KvCacheOptions {
  int page_size = 64;
  int64_t max_bytes = 0;                     // of all groups together
  int max_context = 0;                       // longest sequence, for the size of windowed groups
  int max_seqs = 1;
  int max_step_tokens = 0;                   // that all sequences together compute in one step: windowed groups hold them on top of the windows
  int n_kept_ends = 0;                       // ends of sequences whose windows and recurrent states are kept beside those that run (prefix cache)
  // Copies a page inside the device's memory, or between it and the host's; null: the memory is the host's.
  void (*copy_page)(std::byte* to, const std::byte* from, int64_t n_bytes) = nullptr;
};

// Pages [first, last) of a track in one group: those before a position that no query from there on sees.
struct UnseenPages { int first, last; };

class KvCache {
 public:
  // Groups the specs and divides max_bytes so that every group covers the same number of tokens (windowed groups at most what max_seqs windows need).
  // Throws Error when not even one sequence of one page fits, saying how much one token costs.
  KvCache(const std::vector<KvSpec>& specs, Backend& backend, const KvCacheOptions& options);

  int n_groups() const { return int(groups_.size()); }
  int page_size() const { return page_size_; }
  const std::vector<KvRef>& refs() const { return refs_; }            // by KV handle, for ops
  int64_t bytes_per_token() const;                                    // of an unwindowed token, all layers
  int64_t n_bytes() const;                                            // of all pages
  int n_free_pages(int group) const { return groups_[group].pool.n_free(); }
  int n_pages(int group) const { return groups_[group].pool.n_pages(); }
  const KvSpec& spec(int group) const { return groups_[group].layout.spec; }
  int n_layers(int group) const { return int(groups_[group].layout.handles.size()); }

  // Makes room for positions [0, n_tokens) of the track, all groups or none. False: no pages left (nothing changed).
  [[nodiscard]] bool reserve(Track& track, int n_tokens);
  // Gives back the pages that no query at a position >= next_position can see.
  void release_unseen(Track& track, int next_position);
  // Forgets everything: n_computed becomes 0.
  void release(Track& track);
  // A second track over the same pages [0, n_tokens), shared by reference; the last, partly filled page is copied. False: no page left for the copy.
  // `from` must still hold what a query at n_tokens sees.
  [[nodiscard]] bool fork(Track& to, const Track& from, int n_tokens);

  // For whoever holds pages beside the tracks: the prefix tree.
  UnseenPages unseen(int group, int next_position) const;
  int64_t page_bytes(int group) const { return groups_[group].layout.page_bytes; }
  std::byte* page_at(int group, int32_t page) { return groups_[group].base + page * groups_[group].layout.page_bytes; }
  int n_refs(int group, int32_t page) const { return groups_[group].pool.n_refs(page); }
  [[nodiscard]] int32_t take(int group) { return groups_[group].pool.take(); }
  void share(int group, int32_t page) { groups_[group].pool.share(page); }
  void drop(int group, int32_t page) { groups_[group].pool.drop(page); }
  void copy(std::byte* to, const std::byte* from, int64_t n_bytes) const { copy_page_(to, from, n_bytes); }

  // Every page is free xor referenced exactly as often as the given tracks do, and once more for each time it is in `held` (by group). CHECKs; tests call it
  // whenever idle.
  void check_integrity(const std::vector<const Track*>& tracks, const std::vector<std::vector<int32_t>>& held = {}) const;

 private:
  struct Group { KvGroupLayout layout; std::byte* base; PagePool pool; };
  int pages_for(int n_tokens) const { return (n_tokens + page_size_ - 1) / page_size_; }

  int page_size_;
  void (*copy_page_)(std::byte* to, const std::byte* from, int64_t n_bytes);
  std::vector<Group> groups_;
  std::vector<KvRef> refs_;
};

}  // namespace ridge
