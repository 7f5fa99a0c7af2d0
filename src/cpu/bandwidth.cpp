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

// 128 bytes a step in eight independent sums: vector loads on any ISA that the compiler targets, and nothing that waits for the one before. No prefetch
// instructions: on Emerald Rapids two threads read 26.9 GB/s without, 24 to 27 with those into the first or second level, and 9 with non-temporal ones.
uint64_t read_all(const std::byte* data, int64_t n_bytes) {
  using V = uint64_t __attribute__((vector_size(16), aligned(16), may_alias));
  const auto* p = reinterpret_cast<const V*>(data);
  V s[8] = {};
  const int64_t n = n_bytes / 16;
  for (int64_t i = 0; i + 8 <= n; i += 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) s[j] ^= p[i + j];               // unrolled, or the sums live on the stack and halve the speed
  }
  V all = {};
  for (const V& v : s) all ^= v;
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
  clock::time_point sweep_start;
  const clock::time_point start = clock::now();
  // Runs when all threads have finished a sweep and before any begins the next.
  bool first = true;
  std::barrier meet(n, [&]() noexcept {
    const clock::time_point now = clock::now();
    if (!first) best = std::max(best, static_cast<double>(part) * n / std::chrono::duration<double>(now - sweep_start).count());
    first = false;
    done = std::chrono::duration<double>(now - start).count() > seconds;
    sweep_start = now;
  });
  const auto work = [&](int worker) {
    if (pin) cpu::pin_this_thread(topology.cpus[static_cast<size_t>(worker)]);
    std::byte* mine = buffer.data() + part * worker;
    std::memset(mine, 1, static_cast<size_t>(part));                     // a page that was never written is one shared page of zeros, and stays in the cache
    meet.arrive_and_wait();
    do {
      sink ^= read_all(mine, part);
      meet.arrive_and_wait();
    } while (!done);
  };
  {
    std::vector<std::jthread> threads;
    for (int w = 0; w < n; ++w) threads.emplace_back(work, w);
  }
  return best;
}

}  // namespace ridge
