// The threads of blocks as fibers: all of them on one thread of the host, so that a run is repeatable. ucontext gives each its stack; from then on they change places by
// setjmp and longjmp, which ask nothing of the kernel.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
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
  Meeting meeting, fours[8];
  uint64_t brought[32], last_brought[32], of_fours[32], last_of_fours[32];
  int n_ended = 0, stays_until = 0;          // now and then one falls behind the others for a while, and some begin late
};

struct Block;
// A thread of a block: what is looked at in every round.
struct Fiber {
  Block* block;
  Warp* warp;
  int thread;                                // of the block
  bool has_ended = false;
  const uint64_t* turn = nullptr;            // it goes on when this is no longer `was`; null: in any case
  uint64_t was = 0;
  Ready ready = nullptr;                     // and when this says so
  const void* of = nullptr;
  uint64_t cluster_turn = 0;                 // in which it arrived at its cluster's barrier
};
// And where it goes on, kept for the next blocks' threads.
struct Stack {
  ucontext_t first;
  jmp_buf at;
  std::unique_ptr<std::byte[]> memory;
  bool has_begun = false;
};

// Dynamic shared memory begins a little behind such a multiple in the host's memory: kernels have to reckon with shared addresses, which begin at 0.
constexpr size_t kAligned = 1024, kOff = 16;

struct Block {
  dim3 index;
  std::vector<Warp> warps;
  Meeting all, numbered[16];
  int n_ended = 0;
  std::unique_ptr<std::byte[]> memory;
  std::byte* shared = nullptr;
};
struct Cluster { int n_arrived = 0; uint64_t turn = 0; };

jmp_buf scheduler;
std::vector<Fiber> fibers;                   // [block][thread]
std::deque<Stack> stacks;                    // one of each
std::vector<Block> blocks;                   // that run at a time
std::vector<Cluster> clusters;
int n_threads, n_of_cluster;
Fiber* fiber;                                // the one that runs
struct Later { Done done; uint64_t with[4]; };
std::vector<Later> pending;
Body body;
const void* arguments;
std::mt19937 rng{std::getenv("RIDGE_SEED") ? unsigned(std::atoi(std::getenv("RIDGE_SEED"))) : 1u};      // another order

size_t running() { return size_t(fiber - fibers.data()); }
Cluster& own_cluster() { return clusters[running() / size_t(n_threads * n_of_cluster)]; }

void yield() {
  if (_setjmp(stacks[running()].at) == 0) _longjmp(scheduler, 1);
}

void go_on() {
  if (_setjmp(scheduler) != 0) return;
  Stack& stack = stacks[running()];
  if (std::exchange(stack.has_begun, true)) _longjmp(stack.at, 1);
  setcontext(&stack.first);
}

void end_meetings(Block& block, Warp& warp) {
  if (block.all.n_here > 0 && block.all.n_here + block.n_ended == n_threads) block.all.end();
  if (warp.meeting.n_here > 0 && warp.meeting.n_here + warp.n_ended == 32) {
    std::copy(std::begin(warp.brought), std::end(warp.brought), warp.last_brought);
    warp.meeting.end();
  }
}

// Thread after thread: a fiber that has ended begins anew with the next blocks.
void run_threads() {
  for (;; yield()) {
    body(arguments);
    fiber->has_ended = true;
    fiber->block->n_ended++, fiber->warp->n_ended++;
    end_meetings(*fiber->block, *fiber->warp);
  }
}

// Some of what is under way, or all of it.
void happen() {
  for (size_t n = rng() % 8 == 0 ? pending.size() : rng() % 4; n > 0 && !pending.empty(); --n) {
    std::swap(pending[rng() % pending.size()], pending.back());
    const Later l = pending.back();
    pending.pop_back();
    l.done(l.with);
  }
}

void begin(Block& block, dim3 index, size_t shared_bytes) {
  block.index = index;
  block.warps.assign(size_t(n_threads) / 32, {});
  if (const int late = rng() % 4 == 0 ? int(rng() % 2000) : 0; blocks.size() > 1)
    for (Warp& warp : block.warps) warp.stays_until = late;
  block.memory = std::make_unique<std::byte[]>(shared_bytes + kAligned + kOff);
  block.shared = block.memory.get() + (kAligned - reinterpret_cast<uintptr_t>(block.memory.get()) % kAligned) + kOff;
  std::fill(block.shared, block.shared + shared_bytes, std::byte{0xff});     // as numbers: NaN
}

// Side by side, to their ends.
void run_blocks(const std::vector<dim3>& indices, size_t shared_bytes) {
  blocks = std::vector<Block>(indices.size());
  clusters.assign(indices.size() / size_t(n_of_cluster), {});
  for (size_t i = 0; i < indices.size(); ++i) begin(blocks[i], indices[i], shared_bytes);
  const size_t n = indices.size() * size_t(n_threads);
  fibers.assign(n, {});
  for (size_t i = 0; i < n; ++i) {
    Fiber& of = fibers[i];
    of.block = &blocks[i / size_t(n_threads)], of.thread = int(i) % n_threads, of.warp = &of.block->warps[size_t(of.thread) / 32];
  }
  while (stacks.size() < n) {
    Stack& stack = stacks.emplace_back();
    stack.memory.reset(new std::byte[kStackBytes]);
    getcontext(&stack.first);
    stack.first.uc_stack = {.ss_sp = stack.memory.get(), .ss_flags = 0, .ss_size = kStackBytes};
    stack.first.uc_link = nullptr;
    makecontext(&stack.first, run_threads, 0);
  }
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int n_rounds = 0; !order.empty(); ++n_rounds) {
    CHECK_LT(n_rounds, 1'000'000);                                           // threads that wait for what never comes
    std::shuffle(order.begin(), order.end(), rng);
    for (Block& block : blocks)
      if (rng() % 64 == 0) block.warps[rng() % block.warps.size()].stays_until = n_rounds + int(rng() % 100);
    for (const int i : order) {
      fiber = &fibers[size_t(i)];
      if (fiber->warp->stays_until > n_rounds || (fiber->turn && *fiber->turn == fiber->was) || (fiber->ready && !fiber->ready(fiber->of))) continue;
      fiber->ready = nullptr, fiber->turn = nullptr;
      threadIdx.x = unsigned(fiber->thread), blockIdx = fiber->block->index;
      go_on();
    }
    happen();
    std::erase_if(order, [](int i) { return fibers[size_t(i)].has_ended; });
  }
  CHECK(pending.empty());                                                    // copies that nobody waited for
}

// Until the turn has ended.
void await_turn(const uint64_t& turn, uint64_t was) {
  if (turn != was) return;
  fiber->turn = &turn, fiber->was = was;
  yield();
}

bool together = false;
int n_run = 0;

}  // namespace

void wait_until(Ready ready, const void* of) {
  if (ready(of)) return;
  fiber->ready = ready, fiber->of = of;
  yield();
}

void pause() { yield(); }

void later(Done done, const uint64_t (&with)[4]) { pending.push_back({done, {with[0], with[1], with[2], with[3]}}); }
std::byte* shared_memory() { return fiber->block->shared; }
std::byte* shared_memory_of(int rank) { return blocks[running() / size_t(n_threads * n_of_cluster) * size_t(n_of_cluster) + size_t(rank)].shared; }
int this_thread() { return int(running()); }
void run_blocks_together(bool are) { together = are; }

int meet(int brought) {
  Block& block = *fiber->block;
  const uint64_t turn = block.all.turn;
  block.all.n_here++, block.all.sum += brought;
  end_meetings(block, *fiber->warp);
  await_turn(block.all.turn, turn);
  return block.all.last_sum;
}

void arrive_at(int number, int n) {
  Meeting& meeting = fiber->block->numbered[number];
  CHECK_LE(++meeting.n_here, n);
  if (meeting.n_here == n) meeting.end();
}
void meet_at(int number, int n) {
  const Meeting& meeting = fiber->block->numbered[number];
  const uint64_t turn = meeting.turn;
  arrive_at(number, n);
  await_turn(meeting.turn, turn);
}

const uint64_t* exchange(uint64_t brought, unsigned mask) {
  Warp& warp = *fiber->warp;
  const int lane = fiber->thread % 32, four = lane / 4;
  if (mask != 0xffffffffu) {
    CHECK_EQ(mask, 0xfu << 4 * four);
    Meeting& meeting = warp.fours[four];
    const uint64_t turn = meeting.turn;
    warp.of_fours[lane] = brought;
    if (++meeting.n_here == 4) {
      std::copy_n(warp.of_fours + 4 * four, 4, warp.last_of_fours + 4 * four);
      meeting.end();
    }
    await_turn(meeting.turn, turn);
    return warp.last_of_fours;
  }
  const uint64_t turn = warp.meeting.turn;
  warp.brought[lane] = brought;
  warp.meeting.n_here++;
  end_meetings(*fiber->block, warp);
  await_turn(warp.meeting.turn, turn);
  return warp.last_brought;
}

void arrive_at_cluster() {
  Cluster& cluster = own_cluster();
  fiber->cluster_turn = cluster.turn;
  if (++cluster.n_arrived == n_threads * n_of_cluster) cluster.n_arrived = 0, cluster.turn++;
}
void await_cluster() {
  await_turn(own_cluster().turn, fiber->cluster_turn);
}

int n_grids() { return n_run; }

void run_grid(dim3 grid, dim3 threads, size_t shared_bytes, int cluster, Body b, const void* a) {
  n_run++;
  CHECK(threads.y == 1 && threads.z == 1 && threads.x % 32 == 0 && grid.x % unsigned(cluster) == 0);
  body = b, arguments = a;
  gridDim = grid, blockDim = threads, n_threads = int(threads.x), n_of_cluster = cluster;
  const size_t n_at_a_time = together ? size_t{grid.x} * grid.y * grid.z : size_t(cluster);
  std::vector<dim3> now;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        now.push_back({x, y, z});
        if (now.size() < n_at_a_time) continue;
        run_blocks(now, shared_bytes);
        now.clear();
      }
}

}  // namespace ridge::emulated
