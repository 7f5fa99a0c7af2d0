// What the device can read, measured: the limits that other figures are shares of.
#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "cuda/cuda_backend.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/device.h"

namespace ridge {

using namespace cuda;

double measure_cuda_read_bandwidth() {
  constexpr int64_t kBytes = int64_t{4} << 30;
  void* data = nullptr;
  CUDA_TRY(cudaMalloc(&data, kBytes));
  CUDA_TRY(cudaMemset(data, 0, kBytes));
  cudaEvent_t start, stop;
  CUDA_TRY(cudaEventCreate(&start));
  CUDA_TRY(cudaEventCreate(&stop));
  float best = 1e9f;
  for (int i = 0; i < 8; ++i) {
    CUDA_TRY(cudaEventRecord(start));
    read_all(data, kBytes);
    CUDA_TRY(cudaEventRecord(stop));
    CUDA_TRY(cudaEventSynchronize(stop));
    float ms = 0;
    CUDA_TRY(cudaEventElapsedTime(&ms, start, stop));
    best = std::min(best, ms);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  CUDA_TRY(cudaFree(data));
  return kBytes / (best * 1e-3);
}

double measure_cuda_read_in_turn(int64_t n_bytes, int64_t n_input_bytes, int64_t n_result_bytes) {
  CHECK(n_input_bytes <= kMostInputInTurn && (n_result_bytes == 0 || n_input_bytes > 0));
  cudaDeviceProp properties;
  CUDA_TRY(cudaGetDeviceProperties(&properties, 0));
  if (properties.major < 9) return 0;
  constexpr int kKernels = 64;
  std::byte* data = nullptr;
  const int64_t all = std::max<int64_t>(int64_t{1} << 30, 2 * n_bytes);       // far more than the cache holds
  CUDA_TRY(cudaMalloc(&data, all));
  CUDA_TRY(cudaMemset(data, 0, all));
  std::byte* passed_on = nullptr;                                              // between neighbours, by turns
  const int64_t most_passed_on = (std::max(n_input_bytes, n_result_bytes) + 15) / 16 * 16;
  CUDA_TRY(cudaMalloc(&passed_on, std::max<int64_t>(2 * most_passed_on, 16)));
  CUDA_TRY(cudaMemset(passed_on, 0, 2 * most_passed_on));
  const auto passed = [&](int turn, int64_t n) { return std::span(passed_on + turn % 2 * most_passed_on, size_t(n)); };
  Launch launch{};
  launch.n_sms = properties.multiProcessorCount;
  CUDA_TRY(cudaStreamCreateWithFlags(&launch.stream, cudaStreamNonBlocking));
  double best = 1e9;
  for (const int n_at_once : {5, 12}) {                                        // beside the kernel before it, or with as much as there is room for
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_TRY(cudaStreamBeginCapture(launch.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kKernels; ++i) read_in_turn(data + i * n_bytes % (all - n_bytes) / 16 * 16, n_bytes, n_at_once, passed(i, n_input_bytes), passed(i + 1, n_result_bytes), launch);
    CUDA_TRY(cudaStreamEndCapture(launch.stream, &graph));
    CUDA_TRY(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 12; ++i) {
      const auto start = std::chrono::steady_clock::now();
      CUDA_TRY(cudaGraphLaunch(exec, launch.stream));
      CUDA_TRY(cudaStreamSynchronize(launch.stream));
      if (i >= 2) best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(launch.stream);
  CUDA_TRY(cudaFree(passed_on));
  CUDA_TRY(cudaFree(data));
  return best / kKernels;
}

}  // namespace ridge
