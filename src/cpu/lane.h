// What a kernel sees of the team that runs it: its number, the team's size, scratch memory, a barrier and a shared work counter.
// Every worker of the team runs every op; a kernel must pass the same number of barriers on all of them.
#pragma once
#include <algorithm>
#include <utility>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/simd/pause.h"

namespace ridge {

class Step;
class Team;

// Where a worker begins to read an op's weights: two panels side by side, panel_bytes apart.
struct StreamStart {
  const std::byte* at = nullptr;
  int64_t panel_bytes = 0;
};

// What a worker will read next from memory, asked for while it waits for the others: the memory has nothing else to do then.
class StreamAhead {
 public:
  void begin(const StreamStart& start, int64_t done) { start_ = start, done_ = done; }
  // The next two lines, one of each panel.
  void step() {
    if (done_ >= kMost || !start_.at) return;
    const int64_t pair = done_ / start_.panel_bytes;
    for (int64_t p = 0; p < 2; ++p) cpu::prefetch_idle(start_.at + (pair + p) * start_.panel_bytes + done_);
    done_ += 64;
  }

 private:
  static constexpr int64_t kMost = 32 << 10;      // of each panel: a second-level cache holds it beside what the ops between two matmuls touch
  StreamStart start_;
  int64_t done_ = 0;
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
  StreamAhead* ahead = nullptr;              // this worker's

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

  // As share(), where long runs are best: every worker begins with all of its even part (cut at multiples of `grain`) but 1 / n_shares of it, one stream that
  // prefetching can follow; the ends of the parts are drawn in pieces of up to 8, so that all are done at the same time. A worker that is in step with the
  // others draws its own.
  template <class Work>
  void share_streams(int64_t n, int64_t grain, int64_t n_shares, Work&& work) {
    if (n_workers == 1) {
      if (n > 0) work(int64_t{0}, n);
      return;
    }
    const auto body_end = [=](std::pair<int64_t, int64_t> p) { return p.second - (p.second - p.first) / (n_shares * grain) * grain; };
    const auto mine = part(n, grain);
    if (mine.first < mine.second) work(mine.first, body_end(mine));
    const int64_t piece = std::clamp<int64_t>(n / n_workers / (8 * n_shares), 1, 8), most = (n / n_workers + 2 * grain) / n_shares / piece + 1;
    for (;;) {
      const int64_t drawn = counter->fetch_add(1, std::memory_order_relaxed), i = drawn / n_workers;
      if (i >= most) return;
      const auto whose = part_of(static_cast<int>(drawn % n_workers), n, grain);
      const int64_t first = body_end(whose) + i * piece, last = std::min(first + piece, whose.second);
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
