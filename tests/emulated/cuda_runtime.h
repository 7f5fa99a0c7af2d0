// A stand-in for CUDA's own header, so that kernels of plain CUDA are compiled for the host and run there, thread by thread: CI has no GPU, and a wrong index or a missing barrier should not
// wait for one. Blocks run one after the other; a block's threads are fibers that go on until a barrier or an exchange between lanes, in another order each time. What it cannot show: races
// between two barriers where no order of whole stretches makes a difference, what blocks do to each other, and anything in PTX.
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

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 { unsigned x, y; };

extern dim3 threadIdx, blockIdx, blockDim, gridDim;      // of the thread that runs

namespace ridge::emulated {

// Waits for all threads of the block that have not ended; the sum of what they bring.
int meet(int brought);
// Waits for the 32 lanes of the warp; what each of them brought.
const uint64_t* exchange(uint64_t brought);

using Body = void (*)(const void*);
void run_grid(dim3 grid, dim3 threads, Body body, const void* arguments);
template <class Call>
void run_grid(dim3 grid, dim3 threads, const Call& call) {
  run_grid(grid, threads, [](const void* c) { (*static_cast<const Call*>(c))(); }, &call);
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

template <class T>
T __shfl_xor_sync(unsigned, T v, int lanes) { return ridge::emulated::value_of<T>(ridge::emulated::exchange(ridge::emulated::bits_of(v))[(threadIdx.x % 32) ^ unsigned(lanes)]); }
template <class T>
T __shfl_up_sync(unsigned, T v, unsigned lanes) {
  const unsigned lane = threadIdx.x % 32;
  return ridge::emulated::value_of<T>(ridge::emulated::exchange(ridge::emulated::bits_of(v))[lane >= lanes ? lane - lanes : lane]);
}

template <class T>
T __ldcg(const T* p) { return *p; }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __int2float_rn(int v) { return float(v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }

template <class T>
T atomicAdd(T* p, T v) { const T was = *p; *p = was + v; return was; }
template <class T>
T atomicMax(T* p, T v) { const T was = *p; *p = std::max(was, v); return was; }
template <class T>
T atomicExch(T* p, T v) { const T was = *p; *p = v; return was; }

// As much of the host's side as launches use.
using cudaStream_t = void*;
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization, cudaLaunchAttributePreferredSharedMemoryCarveout, cudaLaunchAttributeClusterDimension };
enum { cudaSharedmemCarveoutMaxShared = 100 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct { int programmaticStreamSerializationAllowed, sharedMemCarveout; dim3 clusterDim; } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class... Params>
void cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Params... params) {
  ridge::emulated::run_grid(config->gridDim, config->blockDim, [&] { kernel(params...); });
}
