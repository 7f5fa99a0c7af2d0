#include "cpu/team.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "cpu/simd/pause.h"
#include "cpu/topology.h"

namespace ridge {
namespace {

// A wait that is polite to the core for a while, then to the other threads of the machine. spin_us covers the gaps within a step and between two steps of
// a busy engine; a worker that is descheduled in the middle of a step costs a time slice, so nobody gives way earlier than that.
class Patience {
 public:
  explicit Patience(bool crowded) : spin_us_(crowded ? 0 : 50) {}

  // False once it has lasted so long (0.5 ms) that a sleep is cheaper.
  bool wait() {
    if (++n_ % 32 != 0 && spin_us_ != 0 && !yielding_) {
      cpu::pause();
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (n_us_ < 0) start_ = now;
    n_us_ = std::chrono::duration_cast<std::chrono::microseconds>(now - start_).count();
    yielding_ = n_us_ >= spin_us_;
    if (yielding_) std::this_thread::yield();
    return n_us_ < 500;
  }

 private:
  const int64_t spin_us_;
  int64_t n_us_ = -1;
  uint32_t n_ = 0;
  bool yielding_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

void Lane::barrier() {
  if (n_workers > 1) team->barrier(worker);
}

Team::Team(int n_workers, bool pin) : n_workers_(n_workers), workers_(static_cast<size_t>(n_workers)) {
  CHECK_GE(n_workers, 1);
  const cpu::Topology topology = cpu::read_topology();
  const int n_cpus = static_cast<int>(topology.cpus.size());
  crowded_ = n_workers > n_cpus;
  for (int w = 1; w < n_workers; ++w) {
    const int cpu = pin && !crowded_ ? topology.cpus[static_cast<size_t>(w)] : -1;
    threads_.emplace_back([this, w, cpu] { follow(w, cpu); });
  }
}

Team::~Team() {
  await(0);
  stop_.store(true);
  published_.fetch_add(1);
  bell_.fetch_add(1);
  bell_.notify_all();
  threads_.clear();
}

void Team::reserve(int64_t own_bytes, int64_t shared_bytes) {
  wait();
  for (Worker& worker : workers_)
    if (worker.own.size() < own_bytes) worker.own = cpu::PageMemory(own_bytes);
  if (shared_.size() < shared_bytes) shared_ = cpu::PageMemory(shared_bytes);
}

void Team::parallel(int64_t n, int64_t chunk, const std::function<void(int64_t, int64_t)>& work) {
  struct Range { int64_t n, chunk; const std::function<void(int64_t, int64_t)>* work; };
  run<Range>([](const Range& r, Lane& lane) { lane.share(r.n, r.chunk, *r.work); }, Range{n, chunk, &work}, nullptr);
  wait();
}

Team::Task& Team::next() {
  return ring_[n_published_ % kRing];
}

void Team::publish() {
  const int64_t index = n_published_++;
  ring_[index % kRing].counter.store(0, std::memory_order_relaxed);
  // Either this thread sees the sleeper's mark, or the sleeper sees the new count: both sides write, then read, in one total order.
  published_.store(n_published_, std::memory_order_seq_cst);
  if (n_asleep_.load(std::memory_order_seq_cst) > 0) {
    bell_.fetch_add(1, std::memory_order_seq_cst);
    bell_.notify_all();
  }
  execute(index, 0);
}

void Team::execute(int64_t index, int worker) {
  await(worker);
  Task& task = ring_[index % kRing];
  Lane lane{.worker = worker, .n_workers = n_workers_, .step = task.step, .own = workers_[static_cast<size_t>(worker)].own.bytes(),
            .shared = shared_.bytes(), .team = this, .counter = &task.counter, .hints = task.hints};
  task.run(task.what, lane);
  arrive(worker);
}

void Team::follow(int worker, int cpu) {
  if (cpu >= 0) cpu::pin_this_thread(cpu);
  for (int64_t index = 0;; ++index) {
    Patience patience(crowded_);
    while (published_.load(std::memory_order_acquire) <= index) {
      if (patience.wait()) continue;
      n_asleep_.fetch_add(1, std::memory_order_seq_cst);
      const uint32_t bell = bell_.load(std::memory_order_seq_cst);
      if (published_.load(std::memory_order_seq_cst) <= index) bell_.wait(bell, std::memory_order_seq_cst);
      n_asleep_.fetch_sub(1, std::memory_order_relaxed);
    }
    if (stop_.load(std::memory_order_acquire)) return;
    execute(index, worker);
  }
}

void Team::arrive(int worker) {
  ++workers_[static_cast<size_t>(worker)].n_barriers;
  arrived_.fetch_add(1, std::memory_order_acq_rel);
}

void Team::await(int worker) {
  const int64_t target = workers_[static_cast<size_t>(worker)].n_barriers * n_workers_;
  Patience patience(crowded_);
  while (arrived_.load(std::memory_order_acquire) < target) patience.wait();
}

}  // namespace ridge
