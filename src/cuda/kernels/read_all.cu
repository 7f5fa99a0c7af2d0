// A plain sweep over memory, to measure what the device can read.
#include "cuda/kernels/kernels.h"

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

}  // namespace

void read_all(const void* data, int64_t n_bytes) {
  read_kernel<<<132 * 16, 512>>>(static_cast<const uint4*>(data), n_bytes / 16, static_cast<uint4*>(const_cast<void*>(data)));
}

}  // namespace ridge::cuda
