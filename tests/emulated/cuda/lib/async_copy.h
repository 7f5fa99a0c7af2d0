// The barriers and copies of sm_90 (src/cuda/lib/async_copy.h) as fibers have them: bytes come, and leave, as late as they may.
#pragma once
#define sync_threads_of ptx_sync_threads_of
#define copy_chunk ptx_copy_chunk
#define copy_part_of_chunk ptx_copy_part_of_chunk
#define commit_chunks ptx_commit_chunks
#define await_chunks ptx_await_chunks
#define arrive_with ptx_arrive_with
#define read_again ptx_read_again
#define store_kept ptx_store_kept
#include "../../../../src/cuda/lib/async_copy.h"
#undef sync_threads_of
#undef copy_chunk
#undef copy_part_of_chunk
#undef commit_chunks
#undef await_chunks
#undef arrive_with
#undef read_again
#undef store_kept

#include <cstring>
#include <map>
#include <vector>

#include "base/check.h"

namespace ridge::cuda {

#define RIDGE_DYNAMIC_SHARED(name, alignment) std::byte* const name = emulated::shared_memory()

// What a Barrier's 64 bits hold here.
struct BarrierState {
  uint64_t phase : 1, n_arrivals : 11, n_missing : 12;
  int64_t n_bytes : 40;                      // expected and not there yet; below zero while they come before they are expected
};
inline BarrierState state_of(const Barrier* b) { return std::bit_cast<BarrierState>(*b); }
inline void change(Barrier* b, int n_arrivals, int64_t n_bytes) {
  BarrierState s = state_of(b);
  CHECK_GE(int(s.n_missing), n_arrivals);                                       // one arrival too many
  s.n_missing -= unsigned(n_arrivals), s.n_bytes += n_bytes;
  if (s.n_missing == 0 && s.n_bytes == 0) s.phase ^= 1, s.n_missing = s.n_arrivals;
  *b = std::bit_cast<Barrier>(s);
}

inline void init_barrier(Barrier* b, int n_arrivals) { *b = std::bit_cast<Barrier>(BarrierState{.phase = 0, .n_arrivals = unsigned(n_arrivals), .n_missing = unsigned(n_arrivals), .n_bytes = 0}); }
inline void publish_barriers() {}
inline void arrive(Barrier* b) { change(b, 1, 0); }
inline void arrive_expecting(Barrier* b, int n_bytes) { change(b, 1, n_bytes); }
inline void await(Barrier* b, uint32_t parity) {
  emulated::wait_until([=] { return state_of(b).phase != parity; });
}
inline void await_long(Barrier* b, uint32_t parity) { await(b, parity); }

inline void copy_bulk(void* to, const void* from, int n_bytes, Barrier* b) {
  CHECK(n_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(to) % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0);
  emulated::later(
      [](const uint64_t (&with)[4]) {
        std::memcpy(reinterpret_cast<void*>(with[0]), reinterpret_cast<const void*>(with[1]), with[2]);
        change(reinterpret_cast<Barrier*>(with[3]), 0, -int64_t(with[2]));
      },
      {reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), uint64_t(n_bytes), reinterpret_cast<uintptr_t>(b)});
}

// A thread's stores on their way out, by groups; they are made when their thread waits until they have been read.
struct Leaving {
  struct Store { void (*make)(const Store&); void* to; const void* from; int64_t at[4]; };
  std::vector<std::vector<Store>> groups{1};
};
inline Leaving& leaving() {
  static std::map<int, Leaving> of_thread;
  return of_thread[emulated::this_thread()];
}
inline void store_bulk(void* to, const void* from, int n_bytes) {
  CHECK(n_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(to) % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0);
  leaving().groups.back().push_back({[](const Leaving::Store& s) { std::memcpy(s.to, s.from, size_t(s.at[0])); }, to, from, {n_bytes}});
}
inline void commit_stores() { leaving().groups.emplace_back(); }
template <int kPending = 0>
inline void await_stores_read() {
  auto& groups = leaving().groups;
  while (groups.size() > size_t(kPending) + 1) {
    for (const Leaving::Store& s : groups.front()) s.make(s);
    groups.erase(groups.begin());
  }
}
inline void await_stores() { await_stores_read(); }

constexpr int kWarpArrivals = 1;
inline void arrive_as_warp(Barrier* b, int lane) {
  emulated::exchange(0);                                                      // a warp comes here as one: every wait before ends in a place where its lanes meet
  if (lane == 0) arrive(b);
}

inline void sync_threads_of(int id, int n_threads) { emulated::meet_at(id, n_threads); }
inline void arrive_among_threads(int id, int n_threads) { emulated::arrive_at(id, n_threads); }
inline void arrive_with(Barrier* b, float) { arrive(b); }
inline void make_meeting(Barrier*, int) {}
inline void meet(Barrier*, int id, int n_threads) { sync_threads_of(id, n_threads); }

inline uint64_t read_once() { return 0; }
inline uint64_t read_again() { return 0; }
template <class T>
void store_kept(float* p, const T& v, uint64_t) { std::memcpy(p, &v, sizeof v); }
inline void copy_bulk(void* to, const void* from, int n_bytes, Barrier* b, uint64_t) { copy_bulk(to, from, n_bytes, b); }
// A thread's chunks, by groups; they come when it waits for them.
struct Chunk { void* to; const void* from; int n_bytes; };      // then zeros
inline std::vector<std::vector<Chunk>>& chunks() {
  static std::map<int, std::vector<std::vector<Chunk>>> of_thread;
  auto& groups = of_thread[emulated::this_thread()];
  if (groups.empty()) groups.emplace_back();
  return groups;
}
inline void copy_part_of_chunk(void* to, const void* from, int n_bytes) { chunks().back().push_back({to, from, n_bytes}); }
inline void copy_chunk(void* to, const void* from) { copy_part_of_chunk(to, from, 16); }
inline void copy_chunk(void* to, const void* from, bool valid) { copy_part_of_chunk(to, from, valid ? 16 : 0); }
inline void commit_chunks() { chunks().emplace_back(); }
template <int kPending>
void await_chunks() {
  auto& groups = chunks();
  while (groups.size() > size_t(kPending) + 1) {
    for (const Chunk& c : groups.front()) {
      std::memset(c.to, 0, 16);
      if (c.n_bytes > 0) std::memcpy(c.to, c.from, size_t(c.n_bytes));
    }
    groups.erase(groups.begin());
  }
}

inline void fence_for_copies() {}
inline void fence_for_wgmma() {}
template <int kRegisters> void shrink_registers() {}
template <int kRegisters> void grow_registers() {}

}  // namespace ridge::cuda
