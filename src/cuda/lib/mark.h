// How far a step has come, for whoever asks after a fault, when the device's memory is gone: a kernel that runs once a layer writes the number of its op to memory of
// the host, while it waits for its predecessors anyway. Since kernels overlap, that may be an op or two ahead.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::cuda {

struct Mark { int32_t* at; int32_t op; };    // at: null where nobody asks

#if defined(__CUDACC__) || defined(RIDGE_EMULATED)      // the backend itself is compiled by the host's compiler
__device__ inline void leave([[maybe_unused]] const Mark& mark) {
#if defined(__CUDA_ARCH__)
  if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && mark.at) asm volatile("st.relaxed.sys.global.s32 [%0], %1;" ::"l"(mark.at), "r"(mark.op) : "memory");
#endif
}
#endif

}  // namespace ridge::cuda
