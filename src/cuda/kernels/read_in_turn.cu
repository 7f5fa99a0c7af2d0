// Memory that is read as matmuls of few tokens read their weights, by kernels launched as they are: the least that such a matmul takes, whatever it computes. With an input, each waits for what the kernel
// before has stored, brings it to every multiprocessor, and stores results of its own, as matmuls do that follow each other.
#include "cuda/kernels/kernels.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 128, kSlotBytes = 16 << 10, kMostSlots = 12, kMostInputBytes = kMostInputInTurn, kRingAt = 128;
static_assert(kMostSlots * 8 <= kRingAt);

struct InTurn {
  const std::byte* data;
  int n_slots, n_at_once;
  const uint4* input;
  int n_input;                               // of 16 bytes
  uint32_t* results;
  int n_results;
};

// Shared memory: gates | a ring of slots | the input.
__global__ void __launch_bounds__(kThreads, 1) read_in_turn_kernel([[maybe_unused]] const InTurn t) {
#if defined(RIDGE_SM90)
  RIDGE_DYNAMIC_SHARED(memory, 1024);
  Barrier* const arrived = reinterpret_cast<Barrier*>(memory);
  uint4* const input = reinterpret_cast<uint4*>(memory + kRingAt + t.n_at_once * kSlotBytes);
  start_dependents();
  const uint64_t policy = read_once();
  const int n = (t.n_slots - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
  const auto ask = [&](int i) {
    arrive_expecting(arrived + i % t.n_at_once, kSlotBytes);
    copy_bulk(memory + kRingAt + i % t.n_at_once * kSlotBytes, t.data + int64_t{int(blockIdx.x) + i * int(gridDim.x)} * kSlotBytes, kSlotBytes, arrived + i % t.n_at_once, policy);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < t.n_at_once; ++i) init_barrier(arrived + i, 1);
    publish_barriers();
    for (int i = 0; i < min(n, t.n_at_once); ++i) ask(i);
  }
  await_predecessors();
#pragma unroll 4
  for (int i = int(threadIdx.x); i < t.n_input; i += kThreads) input[i] = __ldcg(t.input + i);
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0; i < n; ++i) {
      await(arrived + i % t.n_at_once, i / t.n_at_once & 1);
      if (i + t.n_at_once < n) ask(i + t.n_at_once);
    }
  __syncthreads();
  for (int i = int(blockIdx.x) * kThreads + int(threadIdx.x); i < t.n_results; i += int(gridDim.x) * kThreads) t.results[i] = reinterpret_cast<const uint32_t*>(input)[i % (4 * t.n_input)];
#endif
}

}  // namespace

void read_in_turn(const std::byte* data, int64_t n_bytes, int n_at_once, std::span<const std::byte> input, std::span<std::byte> results, const Launch& l) {
  static const cudaError_t allowed = cudaFuncSetAttribute(read_in_turn_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRingAt + kMostSlots * kSlotBytes + kMostInputBytes);      // where it is not, the launch fails
  (void)allowed;
  launch_kernel(read_in_turn_kernel, dim3(l.n_sms), kThreads, kRingAt + n_at_once * kSlotBytes + int(input.size()), l.stream,
                InTurn{data, int(n_bytes / kSlotBytes), n_at_once, reinterpret_cast<const uint4*>(input.data()), int(input.size() / 16), reinterpret_cast<uint32_t*>(results.data()), int(results.size() / 4)});
}

}  // namespace ridge::cuda
