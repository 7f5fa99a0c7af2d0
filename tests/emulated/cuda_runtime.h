// A stand-in for CUDA's own header, so that kernels of plain CUDA are compiled for the host and run there, thread by thread: CI has no GPU, and a wrong index or a missing barrier should not
// wait for one. Blocks run one after the other, those of a cluster side by side; threads are fibers that go on until a barrier or an exchange between lanes, in another order each time. What PTX does for kernels of
// sm_90a has stand-ins of its own (cuda/lib beside this): copies arrive late and in any order, products are made when they are waited for. What it cannot show: races
// between two barriers where no order of whole stretches makes a difference, and anything else in PTX.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __shared__ static                    // a block at a time
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) int2 { int x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };

extern dim3 threadIdx, blockIdx, blockDim, gridDim;      // of the thread that runs

namespace ridge::emulated {

// Waits for all threads of the block that have not ended; the sum of what they bring.
int meet(int brought);
// Waits for the lanes of the warp that the mask names, all 32 or four in a row; what each of them brought.
const uint64_t* exchange(uint64_t brought, unsigned mask = 0xffffffffu);

// Lets others run until `ready`, which is asked again and again.
using Ready = bool (*)(const void*);
void wait_until(Ready ready, const void* of);
template <class Is>
void wait_until(const Is& is_ready) {
  wait_until([](const void* i) { return (*static_cast<const Is*>(i))(); }, &is_ready);
}
void pause();                                // the others go on once
// What happens beside the threads: `done` is called at some time, in no order.
using Done = void (*)(const uint64_t (&with)[4]);
void later(Done done, const uint64_t (&with)[4]);
// The block's dynamic shared memory, which holds anything at first, and that of a block of its cluster; its start is at 0 of shared addresses.
std::byte* shared_memory();
std::byte* shared_memory_of(int rank);
int this_thread();                           // among those of all blocks that run
// Waits for n threads of the block that come to the same number.
void meet_at(int number, int n);
void arrive_at(int number, int n);           // the same without waiting
void arrive_at_cluster();
void await_cluster();
// Whether all blocks of a grid run side by side, as kernels need it whose blocks wait for each other. Then, and in clusters, nothing may lie in shared memory of a fixed size, which is `static` here.
void run_blocks_together(bool are);
struct Together {
  Together() { run_blocks_together(true); }
  ~Together() { run_blocks_together(false); }
};

using Body = void (*)(const void*);
void run_grid(dim3 grid, dim3 threads, size_t shared_bytes, int cluster, Body body, const void* arguments);
int n_grids();                               // that have run
template <class Call>
void run_grid(dim3 grid, dim3 threads, size_t shared_bytes, int cluster, const Call& call) {
  run_grid(grid, threads, shared_bytes, cluster, [](const void* c) { (*static_cast<const Call*>(c))(); }, &call);
}

template <class T>
uint64_t bits_of(T v) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<uint64_t>(v);
  else return std::bit_cast<uint32_t>(v);
}
template <class T>
T value_of(uint64_t bits) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<T>(bits);
  else return std::bit_cast<T>(uint32_t(bits));
}

}  // namespace ridge::emulated

using std::isnan;
using std::max;
using std::min;

inline void __syncthreads() { ridge::emulated::meet(0); }
inline int __syncthreads_count(int v) { return ridge::emulated::meet(v != 0); }
inline int __syncthreads_or(int v) { return ridge::emulated::meet(v != 0) != 0; }
inline void __threadfence() {}
inline void __syncwarp() { ridge::emulated::exchange(0); }
inline void __nanosleep(unsigned) {}

template <class T>
T __shfl_xor_sync(unsigned mask, T v, int lanes) { return ridge::emulated::value_of<T>(ridge::emulated::exchange(ridge::emulated::bits_of(v), mask)[(threadIdx.x % 32) ^ unsigned(lanes)]); }
template <class T>
T __shfl_up_sync(unsigned, T v, unsigned lanes) {
  const unsigned lane = threadIdx.x % 32;
  return ridge::emulated::value_of<T>(ridge::emulated::exchange(ridge::emulated::bits_of(v))[lane >= lanes ? lane - lanes : lane]);
}

template <class T>
T __shfl_sync(unsigned, T v, int lane) { return ridge::emulated::value_of<T>(ridge::emulated::exchange(ridge::emulated::bits_of(v))[lane]); }

inline bool __any_sync(unsigned, bool v) {
  const uint64_t* const brought = ridge::emulated::exchange(v);
  return std::any_of(brought, brought + 32, [](uint64_t b) { return b != 0; });
}

inline unsigned __ballot_sync(unsigned, bool v) {
  const uint64_t* const brought = ridge::emulated::exchange(v);
  unsigned lanes = 0;
  for (int i = 0; i < 32; ++i) lanes |= unsigned(brought[i] != 0) << i;
  return lanes;
}
inline unsigned __reduce_max_sync(unsigned, unsigned v) {
  const uint64_t* const brought = ridge::emulated::exchange(v);
  return unsigned(*std::max_element(brought, brought + 32));
}
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __clz(int v) { return std::countl_zero(unsigned(v)); }
inline int __ffs(unsigned v) { return v == 0 ? 0 : std::countr_zero(v) + 1; }

template <class T>
T __ldcg(const T* p) { return *p; }
template <class T>
T __ldcs(const T* p) { return *p; }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned v = 0;
  for (int i = 0; i < 4; ++i) v |= unsigned(bytes >> (8 * (which >> (4 * i) & 7)) & 255) << (8 * i);
  return v;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) { return unsigned((uint64_t{high} << 32 | low) << (by & 31) >> 32); }
inline size_t __cvta_generic_to_shared(const void* p) { return size_t(static_cast<const std::byte*>(p) - ridge::emulated::shared_memory()); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float rsqrtf(float v) { return 1.0f / std::sqrt(v); }
inline float __int2float_rn(int v) { return float(v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float v) { return 1.0f / v; }

template <class T>
T atomicAdd(T* p, T v) { const T was = *p; *p = was + v; return was; }
template <class T>
T atomicMax(T* p, T v) { const T was = *p; *p = std::max(was, v); return was; }
template <class T>
T atomicExch(T* p, T v) { const T was = *p; *p = v; return was; }

// As much of the host's side as launches use.
using cudaStream_t = void*;
enum cudaError_t { cudaSuccess };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) { return cudaSuccess; }
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization, cudaLaunchAttributePreferredSharedMemoryCarveout, cudaLaunchAttributeClusterDimension };
enum { cudaSharedmemCarveoutMaxShared = 100 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct { int programmaticStreamSerializationAllowed, sharedMemCarveout; dim3 clusterDim; } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* n, Kernel*, const cudaLaunchConfig_t*) { return *n = 1, cudaSuccess; }
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, Kernel*, int, int) { return *n = 1, cudaSuccess; }
template <class... Params>
void cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Params... params) {
  int cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = int(config->attrs[i].val.clusterDim.x);
  ridge::emulated::run_grid(config->gridDim, config->blockDim, config->dynamicSmemBytes, cluster, [&] { kernel(params...); });
}
