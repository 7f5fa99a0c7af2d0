// How fast this machine's memory can be read: the limit that decode speeds are given as a percentage of. Every thread streams through its own part of one
// buffer far larger than the caches, again and again; the best sweep counts.
#include <atomic>
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/page_memory.h"
#include "cpu/topology.h"

namespace ridge {
namespace {

// 128 bytes a step in eight sums of their own, so that nothing waits for the load before; named one by one, because an array of them would live on the stack
// and halve the speed. Whether prefetch instructions help depends on the day: two threads of an Emerald Rapids machine read 31.3 GB/s without and 28.7 with
// those into the second level, another time 24 without and 30 with. So sweeps take turns. (Non-temporal ones never do: 12.)
template <bool kPrefetch>
uint64_t read_all(const std::byte* data, int64_t n_bytes) {
  using V = uint64_t __attribute__((vector_size(16), aligned(16), may_alias));
  const auto* p = reinterpret_cast<const V*>(data);
  V a = {}, b = {}, c = {}, d = {}, e = {}, f = {}, g = {}, h = {};
  for (const V* end = p + n_bytes / 128 * 8; p != end; p += 8) {
    if constexpr (kPrefetch) {
      __builtin_prefetch(p + 256, 0, 2);
      __builtin_prefetch(p + 260, 0, 2);
    }
    a ^= p[0], b ^= p[1], c ^= p[2], d ^= p[3];
    e ^= p[4], f ^= p[5], g ^= p[6], h ^= p[7];
  }
  const V all = a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
  return all[0] ^ all[1];
}

}  // namespace

double measure_read_bandwidth(int n_threads, int64_t n_bytes, double seconds) {
  using clock = std::chrono::steady_clock;
  const cpu::Topology topology = cpu::read_topology();
  const int n = n_threads > 0 ? n_threads : topology.n_cores;
  const bool pin = n <= static_cast<int>(topology.cpus.size());
  const int64_t part = std::max<int64_t>(n_bytes / n / 4096 * 4096, 4096);
  const cpu::PageMemory buffer(part * n);

  double best = 0;
  std::atomic<uint64_t> sink{0};
  std::atomic<bool> done{false};
  clock::time_point sweep_start, first_start;
  // Runs when all threads have finished a sweep and before any begins the next.
  bool first = true;
  std::barrier meet(n, [&]() noexcept {
    const clock::time_point now = clock::now();
    if (first) first_start = now;                                         // the memory is written by now, which may take longer than `seconds`
    else best = std::max(best, static_cast<double>(part) * n / std::chrono::duration<double>(now - sweep_start).count());
    done = !first && std::chrono::duration<double>(now - first_start).count() > seconds;
    first = false;
    sweep_start = now;
  });
  const auto work = [&](int worker) {
    if (pin) cpu::pin_this_thread(topology.cpus[static_cast<size_t>(worker)]);
    std::byte* mine = buffer.data() + part * worker;
    std::memset(mine, 1, static_cast<size_t>(part));                     // a page that was never written is one shared page of zeros, and stays in the cache
    meet.arrive_and_wait();
    for (bool ahead = false; !done; ahead = !ahead) {
      sink ^= ahead ? read_all<true>(mine, part) : read_all<false>(mine, part);
      meet.arrive_and_wait();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int w = 0; w < n; ++w) threads.emplace_back(work, w);
  }
  return best;
}

}  // namespace ridge
