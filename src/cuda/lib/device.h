// CUDA calls checked: a failed call is the world's fault (no memory, a fault in a kernel) and becomes an Error that names the call.
#pragma once
#include <cuda_runtime.h>

#include "base/error.h"

namespace ridge::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail("CUDA: {} failed: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace ridge::cuda

#define CUDA_TRY(call) ::ridge::cuda::check((call), #call)
