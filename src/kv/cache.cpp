#include "kv/cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace ridge {
namespace {

void copy_on_host(std::byte* to, const std::byte* from, int64_t n_bytes) { std::memcpy(to, from, size_t(n_bytes)); }

// In a windowed group position q is unseen when q <= next_position - window, unless it is a sink; in a recurrent one every page before that of the newest
// position, from which the next state is made.
UnseenPages unseen_pages(const KvSpec& spec, int next_position, int page_size) {
  if (spec.kind == KvKind::recurrent) return {0, next_position > 0 ? (next_position - 1) / page_size : 0};
  if (spec.window == 0) return {0, 0};
  const int n_unseen = next_position - spec.window + 1;
  const int first = (spec.sinks + page_size - 1) / page_size;
  return {first, std::max(first, n_unseen > 0 ? n_unseen / page_size : 0)};
}

}  // namespace

KvCache::KvCache(const std::vector<KvSpec>& specs, Backend& backend, const KvCacheOptions& options)
    : page_size_(options.page_size), copy_page_(options.copy_page ? options.copy_page : copy_on_host) {
  if (page_size_ != 16 && page_size_ != 32 && page_size_ != 64) fail("KV page size {}: must be 16, 32 or 64", page_size_);
  CHECK(options.max_context > 0 && options.max_seqs > 0);
  for (const KvSpec& spec : specs)
    if (spec.kind == KvKind::recurrent && page_size_ != 64) fail("KV page size {}: the model has recurrent layers, whose state is kept every 64 tokens; use 64", page_size_);
  std::vector<KvGroupLayout> layouts = group_specs(specs, page_size_);
  if (layouts.size() > kMaxKvGroups) fail("the model's layers keep {} different kinds of KV; at most {} are supported", layouts.size(), kMaxKvGroups);
  const KvDemand demand{.page_size = page_size_, .n_seqs = options.max_seqs, .max_context = options.max_context, .max_step_tokens = options.max_step_tokens,
                        .n_kept_ends = options.n_kept_ends};
  const std::vector<int> n_pages = divide_pages(layouts, demand, options.max_bytes);

  refs_.resize(specs.size());
  for (size_t g = 0; g < layouts.size(); ++g) {
    if (n_pages[g] < 1) {
      int64_t one_page = 0;
      for (const KvGroupLayout& layout : layouts) one_page += layout.page_bytes;
      fail("{} bytes are too little for KV: {} tokens (one page) need {} bytes, {} a token", options.max_bytes, page_size_, one_page, one_page / page_size_);
    }
    std::byte* const base = backend.allocate(layouts[g].page_bytes * n_pages[g]);
    for (size_t i = 0; i < layouts[g].handles.size(); ++i)
      refs_[layouts[g].handles[i]] = {base, layouts[g].page_bytes, layouts[g].offsets[i], layouts[g].spec.planes, int(g), page_size_};
    groups_.push_back({std::move(layouts[g]), base, PagePool(n_pages[g])});
  }
}

UnseenPages KvCache::unseen(int group, int next_position) const { return unseen_pages(groups_[group].layout.spec, next_position, page_size_); }

int64_t KvCache::bytes_per_token() const {
  int64_t sum = 0;
  for (const Group& group : groups_) sum += int64_t(group.layout.handles.size()) * kv_bytes_per_token(group.layout.spec);
  return sum;
}

int64_t KvCache::n_bytes() const {
  int64_t sum = 0;
  for (const Group& group : groups_) sum += group.layout.page_bytes * group.pool.n_pages();
  return sum;
}

bool KvCache::reserve(Track& track, int n_tokens) {
  track.pages.resize(groups_.size());
  const size_t n_wanted = pages_for(n_tokens);
  for (size_t g = 0; g < groups_.size(); ++g)
    if (n_wanted > track.pages[g].size() && int(n_wanted - track.pages[g].size()) > groups_[g].pool.n_free()) return false;
  for (size_t g = 0; g < groups_.size(); ++g)
    while (track.pages[g].size() < n_wanted) track.pages[g].push_back(groups_[g].pool.take());
  return true;
}

void KvCache::release_unseen(Track& track, int next_position) {
  for (size_t g = 0; g < track.pages.size(); ++g) {
    PageTable& table = track.pages[g];
    const UnseenPages unseen = unseen_pages(groups_[g].layout.spec, next_position, page_size_);
    // What was given back is contiguous, so walking down from the newest stops at the first that is gone already.
    for (int i = std::min(unseen.last, int(table.size())) - 1; i >= unseen.first && table[i] >= 0; --i) {
      groups_[g].pool.drop(table[i]);
      table[i] = -1;
    }
  }
}

void KvCache::release(Track& track) {
  for (size_t g = 0; g < track.pages.size(); ++g) {
    // Last page first: the free list is a stack, and the next owner then gets them in the order in which they lie.
    for (auto page = track.pages[g].rbegin(); page != track.pages[g].rend(); ++page)
      if (*page >= 0) groups_[g].pool.drop(*page);
    track.pages[g].clear();
  }
  track.n_computed = 0;
}

bool KvCache::fork(Track& to, const Track& from, int n_tokens) {
  CHECK_LE(n_tokens, from.n_computed);
  const int n_whole = n_tokens / page_size_;
  const bool partial = n_tokens % page_size_ != 0;
  if (partial)
    for (const Group& group : groups_)
      if (group.pool.n_free() == 0) return false;
  release(to);
  to.pages.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const UnseenPages unseen = unseen_pages(group.layout.spec, n_tokens, page_size_);
    for (int i = 0; i < n_whole; ++i) {
      const int32_t page = from.pages[g][i];
      CHECK(page >= 0 || (i >= unseen.first && i < unseen.last));
      if (page >= 0) group.pool.share(page);
      to.pages[g].push_back(page);
    }
    if (!partial) continue;
    const int32_t source = from.pages[g][n_whole], copy = group.pool.take();
    CHECK_GE(source, 0);
    copy_page_(group.base + copy * group.layout.page_bytes, group.base + source * group.layout.page_bytes, group.layout.page_bytes);
    to.pages[g].push_back(copy);
  }
  to.n_computed = n_tokens;
  to.rope_class = from.rope_class;
  release_unseen(to, n_tokens);
  return true;
}

void KvCache::check_integrity(const std::vector<const Track*>& tracks, const std::vector<std::vector<int32_t>>& held) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int> n_refs(groups_[g].pool.n_pages(), 0);
    if (!held.empty())
      for (const int32_t page : held[g]) n_refs.at(page)++;
    for (const Track* track : tracks) {
      if (track->pages.empty()) {
        CHECK_EQ(track->n_computed, 0);
        continue;
      }
      const PageTable& table = track->pages[g];
      CHECK_LE(pages_for(track->n_computed), int(table.size()));
      const UnseenPages unseen = unseen_pages(groups_[g].layout.spec, track->n_computed, page_size_);
      for (int i = 0; i < int(table.size()); ++i) {
        CHECK(table[i] >= 0 || (i >= unseen.first && i < unseen.last));
        CHECK_LT(table[i], groups_[g].pool.n_pages());
        if (table[i] >= 0) n_refs[table[i]]++;
      }
    }
    groups_[g].pool.check_integrity(n_refs);
  }
}

}  // namespace ridge
