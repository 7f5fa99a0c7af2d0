// Clusters (src/cuda/lib/cluster.h): a shared address of another block has its rank, plus one, in the upper bits.
#pragma once
#define arrive_in_cluster ptx_arrive_in_cluster
#define arrive_started ptx_arrive_started
#define await_cluster ptx_await_cluster
#define address_in ptx_address_in
#define store_in ptx_store_in
#include "../../../../src/cuda/lib/cluster.h"
#undef arrive_in_cluster
#undef arrive_started
#undef await_cluster
#undef address_in
#undef store_in

namespace ridge::cuda {

constexpr bool kHasClusters = false;                                           // of kernels whose barriers are of a fixed size
inline void arrive_there(uint32_t) { CHECK(kHasClusters); }
inline void copy_bulk_to_pair(void*, const void*, int, Barrier*) { CHECK(kHasClusters); }

inline void arrive_in_cluster() { emulated::arrive_at_cluster(); }
inline void arrive_started() { emulated::arrive_at_cluster(); }
inline void await_cluster() { emulated::await_cluster(); }
inline uint32_t address_in(uint32_t shared, int rank) { return shared | uint32_t(rank + 1) << 24; }
inline std::byte* there(uint32_t address) { return emulated::shared_memory_of(int(address >> 24) - 1) + (address & 0xFFFFFF); }

template <class T>
void store_in(uint32_t to, const T& v) { std::memcpy(there(to), &v, sizeof v); }
inline void send(uint32_t to, const float4& v, uint32_t barrier) {
  const auto two = [](float a, float b) { return uint64_t{std::bit_cast<uint32_t>(b)} << 32 | std::bit_cast<uint32_t>(a); };
  emulated::later(
      [](const uint64_t (&with)[4]) {
        std::memcpy(reinterpret_cast<void*>(with[0]), &with[1], 16);
        change(reinterpret_cast<Barrier*>(with[3]), 0, -16);
      },
      {reinterpret_cast<uintptr_t>(there(to)), two(v.x, v.y), two(v.z, v.w), reinterpret_cast<uintptr_t>(there(barrier))});
}
inline void await_in_cluster(Barrier* b, uint32_t parity) { await(b, parity); }

}  // namespace ridge::cuda
