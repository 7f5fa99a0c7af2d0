// `cuda`: ops on one stream of one GPU, asynchronous, captured once per shape of step as a CUDA graph and replayed from then on.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "cuda/gemm_way.h"

namespace ridge {

struct CudaOptions {
  int device = 0;
  bool check_f32 = false;                    // f32 products and activations: slow, for comparing with the reference; otherwise bf16 activations in matmuls
  bool graphs = true;
  bool blocking = false;                     // every op is waited for, so that a fault is reported with its op and layer; without graphs, slow
  cuda::GemmWay gemm_way;                    // of all matmuls of many tokens that may go so: for tests and timings
};

// Why there is no CUDA here ("built without CUDA", "no driver", "no device", "compute capability 7.5 is below 8.0"), or empty when there is.
std::string cuda_unavailable_reason();
std::string cuda_device_description();       // "NVIDIA H200, 132 SMs, 139.8 GiB": for `ridge doctor`; empty without one
int64_t cuda_free_bytes();
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);
// Between two addresses of the device, or of it and the host, beside whatever steps are under way: they neither write what it reads nor touch what it writes. Done on return.
void cuda_copy(std::byte* to, const std::byte* from, int64_t n_bytes);

// Bytes per second that the device reads from its memory, best of a few sweeps over a buffer far larger than its cache.
double measure_cuda_read_bandwidth();
// Seconds that a kernel takes which reads so many bytes and does nothing with them, one after the other in a graph; 0 before sm_90. With an input of some bytes (24 KB at most), which every
// multiprocessor fetches when the kernel before has stored it, and with results.
double measure_cuda_read_in_turn(int64_t n_bytes, int64_t n_input_bytes = 0, int64_t n_result_bytes = 0);

}  // namespace ridge
