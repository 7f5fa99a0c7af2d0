// The threads of a block as fibers: all of them on one thread of the host, so that a run is repeatable. ucontext gives each its stack; from then on they change places by
// setjmp and longjmp, which ask nothing of the kernel.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cuda_runtime.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace ridge::emulated {
namespace {

constexpr size_t kStackBytes = 64 << 10;

struct Meeting {
  int n_here = 0, sum = 0, last_sum = 0;
  uint64_t turn = 0;                         // how often all have met
  void end() { last_sum = sum, sum = n_here = 0, turn++; }
};

struct Warp {
  Meeting meeting;
  uint64_t brought[32], last_brought[32];
  int n_ended = 0;
};

struct Fiber {
  ucontext_t first;
  jmp_buf at;
  std::unique_ptr<std::byte[]> stack;
  bool has_begun = false, has_ended = false;
};

jmp_buf scheduler;
std::vector<Fiber> fibers;
std::vector<Warp> warps;
Meeting of_block;
int n_ended, n_threads, running;
struct Later { Done done; uint64_t with[4]; };
std::vector<Later> pending;
// Dynamic shared memory, aligned to no more than CUDA says.
constexpr size_t kOff = 16, kSpare = 1024 + kOff;
struct Shared { std::byte* at; std::unique_ptr<std::byte[]> whole; size_t n; };
Shared shared{};
Body body;
const void* arguments;
std::mt19937 rng;

void yield() {
  if (_setjmp(fibers[size_t(running)].at) == 0) _longjmp(scheduler, 1);
}

void go_on(Fiber& fiber) {
  if (_setjmp(scheduler) != 0) return;
  if (std::exchange(fiber.has_begun, true)) _longjmp(fiber.at, 1);
  setcontext(&fiber.first);
}

void end_meetings(Warp& warp) {
  if (of_block.n_here > 0 && of_block.n_here + n_ended == n_threads) of_block.end();
  if (warp.meeting.n_here > 0 && warp.meeting.n_here + warp.n_ended == 32) {
    std::copy(std::begin(warp.brought), std::end(warp.brought), warp.last_brought);
    warp.meeting.end();
  }
}

void run_thread() {
  body(arguments);
  Warp& warp = warps[size_t(running) / 32];
  fibers[size_t(running)].has_ended = true;
  n_ended++, warp.n_ended++;
  end_meetings(warp);
  yield();
}

// Some of what is under way.
void happen() {
  for (size_t n = rng() % 4; n > 0 && !pending.empty(); --n) {
    std::swap(pending[rng() % pending.size()], pending.back());
    const Later l = pending.back();
    pending.pop_back();
    l.done(l.with);
  }
}

void run_block() {
  of_block = {}, n_ended = 0;
  std::fill(shared.at, shared.at + shared.n, std::byte{0xff});               // as numbers: NaN
  warps.assign(size_t(n_threads) / 32, {});
  for (Fiber& fiber : fibers) {
    if (!fiber.stack) fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
    fiber.has_begun = fiber.has_ended = false;
    getcontext(&fiber.first);
    fiber.first.uc_stack = {.ss_sp = fiber.stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
    fiber.first.uc_link = nullptr;
    makecontext(&fiber.first, run_thread, 0);
  }
  std::vector<int> order(static_cast<size_t>(n_threads));
  std::iota(order.begin(), order.end(), 0);
  for (int n_rounds_without_end = 0; n_ended < n_threads; ++n_rounds_without_end) {
    CHECK_LT(n_rounds_without_end, 1'000'000);                               // threads that wait for what never comes
    std::shuffle(order.begin(), order.end(), rng);
    for (const int i : order) {
      if (fibers[size_t(i)].has_ended) continue;
      running = i;
      threadIdx.x = unsigned(i);
      go_on(fibers[size_t(i)]);
      happen();
    }
  }
  CHECK(pending.empty());                                                      // copies that nobody waited for
}

// Until the meeting has ended.
void await(const Meeting& meeting, uint64_t turn) {
  wait_until([&] { return meeting.turn != turn; });
}

}  // namespace

// Then the thread's number is this one's again.
void wait_until(Ready ready, const void* of) {
  const int self = running;
  while (!ready(of)) yield();
  running = self, threadIdx.x = unsigned(self);
}

void later(Done done, const uint64_t (&with)[4]) { pending.push_back({done, {with[0], with[1], with[2], with[3]}}); }
std::byte* shared_memory() { return shared.at; }
int this_thread() { return running; }

int meet(int brought) {
  const int self = running;
  const uint64_t turn = of_block.turn;
  of_block.n_here++, of_block.sum += brought;
  end_meetings(warps[size_t(self) / 32]);
  await(of_block, turn);
  return of_block.last_sum;
}

const uint64_t* exchange(uint64_t brought) {
  const int self = running;
  Warp& warp = warps[size_t(self) / 32];
  const uint64_t turn = warp.meeting.turn;
  warp.brought[self % 32] = brought;
  warp.meeting.n_here++;
  end_meetings(warp);
  await(warp.meeting, turn);
  return warp.last_brought;
}

void run_grid(dim3 grid, dim3 threads, size_t shared_bytes, Body b, const void* a) {
  CHECK(threads.y == 1 && threads.z == 1 && threads.x % 32 == 0);
  body = b, arguments = a;
  gridDim = grid, blockDim = threads, n_threads = int(threads.x);
  fibers.resize(threads.x);
  if (shared_bytes > shared.n) shared = {nullptr, std::make_unique<std::byte[]>(shared_bytes + kSpare), shared_bytes};
  if (shared.whole) shared.at = shared.whole.get() + (1024 - reinterpret_cast<uintptr_t>(shared.whole.get()) % 1024) + kOff;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) run_block();
}

}  // namespace ridge::emulated
