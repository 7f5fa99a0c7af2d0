// CUDA calls checked: a failed call is the world's fault (no memory, a fault in a kernel) and becomes an Error that names the call. A fault is reported by whichever
// call comes next, which knows nothing of it: which op it was is known only where every op is waited for (CudaOptions::blocking).
#pragma once
#include <cuda_runtime.h>

#include "base/error.h"

namespace ridge::cuda {

inline std::string text_of(cudaError_t status) { return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status)); }

inline constexpr const char* kFaultAdvice = "run again with CUDA_LAUNCH_BLOCKING=1 in the environment to learn the op and the layer";

// What a kernel may die of; the device then does nothing more for this process.
inline bool is_fault(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
  }
}

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (is_fault(status)) fail("CUDA fault in a kernel before {}: {}; {}", what, text_of(status), kFaultAdvice);
  fail("CUDA: {} failed: {}", what, text_of(status));
}

}  // namespace ridge::cuda

#define CUDA_TRY(call) ::ridge::cuda::check((call), #call)
