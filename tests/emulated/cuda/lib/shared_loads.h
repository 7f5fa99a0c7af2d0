// Loads from shared memory by address (src/cuda/lib/shared_loads.h).
#pragma once
#include <cstring>

#include "cuda_runtime.h"

namespace ridge::cuda {

inline float load_shared(uint32_t address) {
  float v;
  std::memcpy(&v, emulated::shared_memory() + address, 4);
  return v;
}
inline void load_where(uint4& v, uint32_t address, bool there) {
  if (there) std::memcpy(&v, emulated::shared_memory() + address, 16);
}
inline int lane_of_warp() { return int(threadIdx.x % 32); }
template <class... T>
void settle(T&...) {}
template <class... T>
void keep(T&...) {}

}  // namespace ridge::cuda
