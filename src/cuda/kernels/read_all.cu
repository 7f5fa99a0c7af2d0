// Memory that is only read, to measure what the device can: a plain sweep, and kernel after kernel as matmuls are launched.
#include "cuda/kernels/kernels.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

__global__ void read_kernel(const uint4* data, int64_t n, uint4* sink) {
  uint4 sum{0, 0, 0, 0};
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) {
    const uint4 v = __ldcs(data + i);
    sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
  }
  if (sum.x == 1 && sum.y == 2 && sum.z == 3 && sum.w == 4) *sink = sum;     // never true for a buffer of zeros; keeps the loads
}

constexpr int kSlotBytes = 16 << 10, kMostSlots = 12;

__global__ void __launch_bounds__(128, 1) read_in_turn_kernel([[maybe_unused]] const std::byte* data, [[maybe_unused]] int n_slots, [[maybe_unused]] int n_at_once) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) std::byte memory[];
  __shared__ Barrier arrived[kMostSlots];
  start_dependents();
  if (threadIdx.x > 0) return;
  for (int i = 0; i < n_at_once; ++i) init_barrier(arrived + i, 1);
  publish_barriers();
  const uint64_t policy = read_once();
  const int n = (n_slots - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
  const auto ask = [&](int i) {
    arrive_expecting(arrived + i % n_at_once, kSlotBytes);
    copy_bulk(memory + i % n_at_once * kSlotBytes, data + int64_t{int(blockIdx.x) + i * int(gridDim.x)} * kSlotBytes, kSlotBytes, arrived + i % n_at_once, policy);
  };
  for (int i = 0; i < min(n, n_at_once); ++i) ask(i);
  await_predecessors();
  for (int i = 0; i < n; ++i) {
    await(arrived + i % n_at_once, i / n_at_once & 1);
    if (i + n_at_once < n) ask(i + n_at_once);
  }
#endif
}

}  // namespace

void read_in_turn(const std::byte* data, int64_t n_bytes, int n_at_once, const Launch& l) {
  static const cudaError_t allowed = cudaFuncSetAttribute(read_in_turn_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSlots * kSlotBytes);      // where it is not, the launch fails
  (void)allowed;
  launch_kernel(read_in_turn_kernel, dim3(l.n_sms), 128, n_at_once * kSlotBytes, l.stream, data, int(n_bytes / kSlotBytes), n_at_once);
}

void read_all(const void* data, int64_t n_bytes) {
  read_kernel<<<132 * 16, 512>>>(static_cast<const uint4*>(data), n_bytes / 16, static_cast<uint4*>(const_cast<void*>(data)));
}

}  // namespace ridge::cuda
