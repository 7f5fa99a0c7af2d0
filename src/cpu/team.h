// The workers of a CPU backend. They stay in a step from its first op to its last: the caller (worker 0) appends tasks to a ring and runs its own share of
// each; the others follow the ring. Between two tasks all meet once, so tasks see each other's results in order.
//
//   published_  tasks that the caller has appended, ever     a worker that has done n waits for published_ > n: it spins, then yields, then sleeps
//   arrived_    barrier arrivals of all workers, ever        the m-th barrier is open once arrived_ >= m * n_workers; nothing is ever reset
//
// A worker arrives when its share of a task is done and waits only before its next one, so the caller can prepare the next task meanwhile.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "cpu/lane.h"
#include "cpu/page_memory.h"

namespace ridge {

class Team {
 public:
  Team(int n_workers, bool pin);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int n_workers() const { return n_workers_; }

  // Scratch of at least these sizes for every worker and for all together. Between steps only.
  void reserve(int64_t own_bytes, int64_t shared_bytes);

  // Appends kernel(what, lane) and returns when this thread's share is done. Complete for every later task, and for the caller after wait().
  template <class T>
  void run(void (*kernel)(const T&, Lane&), const T& what, const Step* step, StreamHints hints = {}) {
    static_assert(sizeof(Call<T>) <= sizeof(Task::what) && std::is_trivially_copyable_v<T>);
    Task& task = next();
    task.run = [](const void* bytes, Lane& lane) {
      const auto& call = *static_cast<const Call<T>*>(bytes);
      call.kernel(call.what, lane);
    };
    task.step = step;
    task.hints = hints;
    new (task.what) Call<T>{kernel, what};
    publish();
  }

  // Until every worker is done with everything.
  void wait() { await(0); }

  // work(first, last) over runs of [0, n) at most `chunk` long, on all workers; returns when done. For loading, between steps; `work` must not throw.
  void parallel(int64_t n, int64_t chunk, const std::function<void(int64_t first, int64_t last)>& work);

  void barrier(int worker) {
    arrive(worker);
    await(worker);
  }

 private:
  template <class T> struct Call { void (*kernel)(const T&, Lane&); T what; };
  struct Task {
    void (*run)(const void* what, Lane& lane) = nullptr;
    const Step* step = nullptr;
    StreamHints hints;
    alignas(16) std::byte what[768];
    alignas(64) std::atomic<int64_t> counter{0};                     // handed-out work (Lane::share)
  };
  struct alignas(64) Worker {
    int64_t n_barriers = 0;                                          // at which this worker has arrived
    cpu::PageMemory own;
  };
  // The caller is at most one task ahead of the slowest worker: it waits for task n before it runs its share of n + 1.
  static constexpr int64_t kRing = 4;

  Task& next();
  void publish();
  void execute(int64_t index, int worker);
  void follow(int worker, int cpu);
  void arrive(int worker);
  void await(int worker);

  const int n_workers_;
  bool crowded_ = false;                                             // more workers than CPUs: waiting gives way at once
  std::vector<Worker> workers_;
  cpu::PageMemory shared_;
  Task ring_[kRing];
  int64_t n_published_ = 0;                                          // the caller's copy of published_
  alignas(64) std::atomic<int64_t> published_{0};
  alignas(64) std::atomic<int64_t> arrived_{0};
  alignas(64) std::atomic<int32_t> n_asleep_{0};
  std::atomic<uint32_t> bell_{0};                                    // what sleepers sleep on
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> threads_;
};

}  // namespace ridge
