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

struct Lane {
  int worker = 0, n_workers = 1;
  const Step* step = nullptr;
  std::span<std::byte> own;                  // this worker's scratch, 64-byte aligned: 8 MiB and 256 bytes for each input of the widest weight, or more
  std::span<std::byte> shared;               // the team's scratch: 1 MiB and 8 bytes for each (token of the step's limit, input of the widest weight), or more
  Team* team = nullptr;
  std::atomic<int64_t>* counter = nullptr;   // zero when the op starts

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

  // This worker's run of [0, n) when it is cut evenly, at multiples of `grain`.
  std::pair<int64_t, int64_t> part(int64_t n, int64_t grain = 1) const {
    const int64_t n_grains = (n + grain - 1) / grain;
    const int64_t first = n_grains * worker / n_workers * grain, last = n_grains * (worker + 1) / n_workers * grain;
    return {std::min(first, n), std::min(last, n)};
  }
};

}  // namespace ridge
