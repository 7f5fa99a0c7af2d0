// Figures of the prefix cache since the engine began: what hit, why the rest did not, and what is kept.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ridge {

// Why tokens of a prompt had to be computed.
enum class MissReason : uint8_t { nothing_cached, other_key, evicted, window_gone };
inline constexpr int kMissReasons = 4;
constexpr std::string_view name_of(MissReason reason) {
  switch (reason) {
    case MissReason::nothing_cached: return "nothing_cached";      // no prompt began like this one
    case MissReason::other_key: return "other_salt_or_adapter";    // one did, with another salt, adapter or class of rotary angles
    case MissReason::evicted: return "evicted";                    // it was there until memory was wanted
    case MissReason::window_gone: return "window_or_state_gone";   // its tokens are there, but not what a window or a recurrent layer needs at the point of departure
  }
  return "nothing_cached";
}

struct PrefixReport {
  bool on = false;
  int page_size = 0;
  int64_t n_lookups = 0;                     // requests taken from the queue for the first time
  int64_t n_hits = 0;                        // of those, with at least one token found
  int64_t n_lookup_tokens = 0, n_hit_tokens = 0;      // of their prompts; the last token of a prompt is always computed
  std::array<int64_t, kMissReasons> misses{};         // lookups that found nothing, by MissReason
  std::array<int64_t, kMissReasons> missed_tokens{};  // tokens that were not found, by the reason why the hit ended where it did
  int64_t n_nodes = 0, n_tokens = 0;         // kept now: blocks of at most page_size tokens, and their tokens
  struct Group {
    int n_pages, n_free;
    int n_held;                              // by the tree, alone or with sequences
    int n_cached;                            // by the tree alone: what eviction can give
    int n_shared;                            // by two or more sequences
  };
  std::vector<Group> groups;
  int64_t n_evicted_pages = 0;
  int64_t n_swapped_out = 0, n_swapped_in = 0;        // pages
  int64_t swapped_bytes = 0;                 // in host memory now
  double seconds = 0;                        // in the tree's code, copies of pages included
};

}  // namespace ridge
