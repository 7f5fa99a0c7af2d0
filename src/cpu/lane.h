// What a kernel sees of the team that runs it: its number, the team's size, scratch memory, a barrier and a shared work counter.
// Every worker of the team runs every op; a kernel must pass the same number of barriers on all of them.
#pragma once
#include <algorithm>
#include <utility>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ridge {

class Step;
class Team;

// Where a worker begins to read an op's weights: two panels side by side, panel_bytes apart.
struct StreamStart {
  const std::byte* at = nullptr;
  int64_t panel_bytes = 0;
};

// One StreamStart per worker, kept from step to step. An op that streams weights leaves its own in `mine` and, when it is done, asks for the beginning of
// `next`, which the op after it left the last time: a guess, and harmless when wrong.
struct StreamHints {
  StreamStart* mine = nullptr;
  const StreamStart* next = nullptr;
};

struct Lane {
  int worker = 0, n_workers = 1;
  const Step* step = nullptr;
  std::span<std::byte> own;                  // this worker's scratch, 64-byte aligned: 8 MiB and 256 bytes for each input of the widest weight, or more
  std::span<std::byte> shared;               // the team's scratch: 1 MiB and 8 bytes for each (token of the step's limit, input of the widest weight), or more
  Team* team = nullptr;
  std::atomic<int64_t>* counter = nullptr;   // zero when the op starts
  StreamHints hints;

  void barrier();

  // Calls work(first, last) for runs of [0, n), at most `chunk` long, until all are done by somebody. No barrier. Once per op (it uses the counter).
  template <class Work>
  void share(int64_t n, int64_t chunk, Work&& work) {
    if (n_workers == 1) {
      if (n > 0) work(int64_t{0}, n);
      return;
    }
    for (;;) {
      const int64_t first = counter->fetch_add(chunk, std::memory_order_relaxed);
      if (first >= n) return;
      work(first, std::min(first + chunk, n));
    }
  }

  // As share(), for what comes from memory: every worker begins with 7/8 of its even part, one long stream that prefetching can follow; the ends of the
  // parts are drawn in pieces, so that all are done at the same time.
  template <class Work>
  void share_streams(int64_t n, Work&& work) {
    constexpr int64_t kPieces = 4;
    const auto body_end = [](std::pair<int64_t, int64_t> p) { return p.second - (p.second - p.first) / 8; };
    const auto mine = part(n);
    if (n_workers == 1) {
      if (n > 0) work(int64_t{0}, n);
      return;
    }
    if (mine.first < mine.second) work(mine.first, body_end(mine));
    for (;;) {
      const int64_t piece = counter->fetch_add(1, std::memory_order_relaxed);
      if (piece >= kPieces * n_workers) return;
      const auto whose = part_of(static_cast<int>(piece % n_workers), n, 1);
      const int64_t begin = body_end(whose), left = whose.second - begin, i = piece / n_workers;
      const int64_t first = begin + left * i / kPieces, last = begin + left * (i + 1) / kPieces;
      if (first < last) work(first, last);
    }
  }

  // This worker's run of [0, n) when it is cut evenly, at multiples of `grain`.
  std::pair<int64_t, int64_t> part(int64_t n, int64_t grain = 1) const { return part_of(worker, n, grain); }

  std::pair<int64_t, int64_t> part_of(int which, int64_t n, int64_t grain) const {
    const int64_t n_grains = (n + grain - 1) / grain;
    const int64_t first = n_grains * which / n_workers * grain, last = n_grains * (which + 1) / n_workers * grain;
    return {std::min(first, n), std::min(last, n)};
  }
};

}  // namespace ridge
