// `cpu`: ops on a team of pinned workers that stays in the step from its first op to its last, with kernels compiled once per ISA and chosen at run time.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace ridge {

struct CpuOptions {
  int n_threads = 0;                         // 0: one per core this process may run on
  std::string isa;                           // "" : the best available
  bool pin = true;
  std::string force_kernel;                  // tests and benchmarks: the Matmul or PagedAttention candidate to use where it supports the op; "" : the list's order
};

std::vector<std::string> available_isas();   // of this build on this machine, best first: {"avx512", "avx2", "scalar"} or {"neon", "scalar"}
std::vector<std::string> cpu_features();     // "avx512_vnni", "amx_int8", "asimddp", "i8mm", ...: for `ridge doctor`
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

// Matmul candidates of an ISA in order, for the conformance test and `ridge bench --kernels`.
std::vector<std::string> matmul_candidates(std::string_view isa);

// Bytes per second that n_threads pinned threads read from memory in the best of a few sweeps over a buffer far larger than the caches.
double measure_read_bandwidth(int n_threads, int64_t n_bytes = int64_t{1} << 30, double seconds = 1.0);

}  // namespace ridge
