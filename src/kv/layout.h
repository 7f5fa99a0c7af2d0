// How KV memory is cut into pages: layers of one KvSpec form a group, and a page of a group holds page_size positions of every layer in it:
//   page: [ layer 0: plane 0 | plane 1 | ... ][ layer 1: ... ] ...      every plane starts at a multiple of 64 bytes
// The sizes are plain arithmetic over the specs, so that `ridge inspect` and the engine can ask what a context costs before any memory exists.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "backend/kv_spec.h"

namespace ridge {

struct KvGroupLayout {
  KvSpec spec;
  std::vector<int> handles;                          // layers (indices into the specs) in this group, in order
  std::vector<std::array<int64_t, kMaxKvPlanes>> offsets;       // of each handle's planes inside a page
  int64_t page_bytes = 0;
};

std::vector<KvGroupLayout> group_specs(const std::vector<KvSpec>& specs, int page_size);

// What the sequences of a cache may need at the same time.
struct KvDemand {
  int page_size = 64;
  int n_seqs = 1;
  int max_context = 0;                               // longest sequence
  int max_step_tokens = 0;                           // tokens that all sequences together compute in one step
  int n_kept_ends = 0;                               // ends of sequences whose windows and states are kept beside those that run
};

// Pages of a group that can be in use at once, however long everything gets: all of max_context, or what the windows can see.
int64_t most_pages(const KvGroupLayout& group, const KvDemand& demand);

// Bytes with which every group has pages for n_tokens (of one sequence, or of several together), windowed groups no more than most_pages.
int64_t kv_bytes_for(const std::vector<KvSpec>& specs, const KvDemand& demand, int64_t n_tokens);

// Pages per group out of max_bytes: the same number for every group, but no group more than most_pages. All zero when max_bytes is too little.
std::vector<int> divide_pages(const std::vector<KvGroupLayout>& groups, const KvDemand& demand, int64_t max_bytes);

}  // namespace ridge
