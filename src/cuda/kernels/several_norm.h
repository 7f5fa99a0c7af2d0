// The rms norm before a matmul of several tokens, by the blocks of that matmul: each norms a row or none into lanes, says so, and asks for its input when all rows are there. As a kernel of its own
// it ran beside the matmul before it, on the few multiprocessors that this leaves, which took its rows in within 2 to 5 us; here they are there after 2.7, and there is a kernel less to wait for.
#pragma once
#include "cuda/kernels/kernels.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/mma.h"
#include "cuda/lib/row_norm.h"

namespace ridge::cuda::several {

struct NormBefore {
  const float* x;                            // null: none
  int64_t stride;
  const float* weight;                       // null: ones
  float weight_offset, eps;
  int cols, n_rows;
  Lanes lanes;
  Turnstile* rows;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// By the multiplying threads: they wait for the kernel's predecessors, and the first kNormThreads norm the block's rows then. The arithmetic is that of lib/row_norm.h; `shared`: 8 floats.
__device__ inline void await_and_norm(const NormBefore& norm, float* shared) {
  if (!norm.x || threadIdx.x >= kNormThreads || int(blockIdx.x) >= norm.n_rows) return await_predecessors();
  constexpr int kMost = kSeveralNormCols / (4 * kNormThreads), kGroup = 2;
  const auto place = [](int i) { return 4 * (int(threadIdx.x) + i * kNormThreads); };
  float4 weights[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    weights[i] = {1, 1, 1, 1};
    if (!norm.weight || place(i) >= norm.cols) continue;
    const float4 w = *reinterpret_cast<const float4*>(norm.weight + place(i));
    weights[i] = {w.x + norm.weight_offset, w.y + norm.weight_offset, w.z + norm.weight_offset, w.w + norm.weight_offset};
  }
  await_predecessors();
#pragma unroll 1
  for (int row = blockIdx.x; row < norm.n_rows; row += gridDim.x) {
    const float* const x = norm.x + row * norm.stride;
    float4 own[kMost];
#pragma unroll
    for (int i = 0; i < kMost; ++i) own[i] = place(i) < norm.cols ? __ldcg(reinterpret_cast<const float4*>(x + place(i))) : float4{0, 0, 0, 0};
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kMost; ++i) squares = add_squares(squares, own[i]);
    const float factor = rms_factor(group_sum(squares, shared, kGroup), norm.cols, norm.eps);
    std::byte* to = norm.lanes.at(row, place(0));
#pragma unroll
    for (int i = 0; i < kMost; ++i, to += norm.lanes.bytes_of(4 * kNormThreads)) {
      if (place(i) >= norm.cols) continue;
      const float4 v = own[i], w = weights[i];
      norm.lanes.put_four(to, {pack_bf16(v.x * factor * w.x, v.y * factor * w.y), pack_bf16(v.z * factor * w.z, v.w * factor * w.w)});
    }
    sync_group(kGroup);
    if (threadIdx.x == 0) norm.rows->pass();
  }
}

// By one thread of each block, before it asks for the input.
__device__ inline void await_rows(const NormBefore& norm) {
  if (!norm.x) return;
  norm.rows->await(norm.n_rows, gridDim.x);
  fence_for_copies();
}

#endif

}  // namespace ridge::cuda::several
