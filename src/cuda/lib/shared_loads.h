// Loads from shared memory by address, and what keeps the compiler from moving numbers about.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::cuda {

#if defined(__CUDACC__)
__device__ inline float load_shared(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address));
  return v;
}
// Lanes that are not `there` keep what v holds, and take no part in the access.
__device__ inline void load_where(uint4& v, uint32_t address, bool there) {
  asm volatile("{\n.reg .pred there;\nsetp.ne.u32 there, %5, 0;\n@there ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "r"(address), "r"(uint32_t(there)));
}
__device__ inline int lane_of_warp() {
  int lane;
  asm volatile("mov.u32 %0, %laneid;" : "=r"(lane));
  return lane;
}

// Addresses, or numbers that are on their way, are not used before this.
template <class T>
__device__ void settle(const T*& p, int& n) { asm volatile("" : "+l"(p), "+r"(n)::"memory"); }
__device__ inline void settle(float4& v) { asm volatile("" : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w)::"memory"); }
// Numbers that are kept in registers, not looked up among the parameters where they are needed: a phase's are 40 cycles away.
template <class... T>
__device__ inline void keep(T&... v) { (..., [&] { asm volatile("" : "+r"(v)); }()); }
#endif

}  // namespace ridge::cuda
