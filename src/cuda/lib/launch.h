// Launches that overlap: a kernel may start while the one before it still runs (programmatic dependent launch, sm_90 and later). Each kernel says start_dependents()
// first thing, does what does not depend on its predecessor (loading weights), and calls await_predecessors() before it touches what others wrote or may still read.
// A kernel's predecessor is done only when everything before it is, so waiting for one is waiting for all.
#pragma once
#include <cuda_runtime.h>

#include <utility>

namespace ridge::cuda {

__device__ inline void start_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline void await_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// For kernels with nothing to do ahead of time.
__device__ inline void follow() {
  start_dependents();
  await_predecessors();
}

// Kernels ask for the same split of a multiprocessor's memory, the largest shared part: one that wants another split starts when the multiprocessor is empty. Only
// what lives from the first-level cache leaves it to the driver.
enum class Split { shared, driver };
struct LaunchAs {
  Split split = Split::shared;
  int cluster = 1;                           // blocks along x that start together and see each other's shared memory (sm_90)
  bool overlaps = true;                      // with the kernel before it
};

template <class... Params, class... Args>
void launch_kernel_as(LaunchAs as, void (*kernel)(Params...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream, Args&&... args) {
  cudaLaunchAttribute attributes[3]{};
  int n = 0;
  attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[n++].val.programmaticStreamSerializationAllowed = as.overlaps;
  if (as.split == Split::shared) {
    attributes[n].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[n++].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  }
  if (as.cluster > 1) {
    attributes[n].id = cudaLaunchAttributeClusterDimension;
    attributes[n].val.clusterDim.x = as.cluster;
    attributes[n].val.clusterDim.y = attributes[n].val.clusterDim.z = 1;
    n++;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = n;
  cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...);
}

template <class... Params, class... Args>
void launch_kernel(void (*kernel)(Params...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream, Args&&... args) {
  launch_kernel_as({}, kernel, grid, threads, shared_bytes, stream, std::forward<Args>(args)...);
}

}  // namespace ridge::cuda
