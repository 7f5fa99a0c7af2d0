// Boxes by the tensor copy engine (sm_90), swizzled in shared memory as lib/wgmma.h has it:
//   planes    a map says where a KV plane's rows lie in its pages, and one instruction brings 64 numbers of 16 bits of a page's rows. They come without a test: who must not see
//             what lies in a page copies chunk by chunk (lib/async_copy.h)
//   outputs   a map of rows of f32, and one instruction stores or adds 32 numbers of some of them; what lies beyond the rows, or the numbers, is left out
#pragma once
#include <cuda.h>

#include "backend/kv_spec.h"
#include "cuda/lib/async_copy.h"

namespace ridge::cuda {

using EncodeMap = decltype(&cuTensorMapEncodeTiled);
inline EncodeMap map_encoder() {                                            // null: the driver has no such maps
  static const EncodeMap encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeMap>(entry) : nullptr;
  }();
  return encode;
}

// [rows][cols] f32, `stride` floats apart; boxes of 32 numbers of `n_rows` rows.
inline bool map_outputs(CUtensorMap& map, float* data, int64_t rows, int64_t cols, int64_t stride, int n_rows) {
  const cuuint64_t sizes[2] = {cuuint64_t(cols), cuuint64_t(rows)}, strides[1] = {cuuint64_t(stride) * 4};
  const cuuint32_t box[2] = {32, cuuint32_t(n_rows)}, every[2] = {1, 1};
  return map_encoder() && map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Numbers of a row, rows [head][position] of a page, pages. False: the driver has no such maps or refuses this one.
inline bool map_plane(CUtensorMap& map, const KvRef& kv, int plane) {
  const EncodeMap encode = map_encoder();
  if (!encode) return false;
  const KvPlane& of = kv.planes[size_t(plane)];
  constexpr cuuint64_t kPages = cuuint64_t{1} << 28;                        // nobody asks for one that is not there
  const cuuint64_t sizes[3] = {cuuint64_t(of.head_dim), cuuint64_t(of.n_heads) * cuuint64_t(kv.page_size), kPages};
  const cuuint64_t strides[2] = {cuuint64_t(of.head_dim) * 2, cuuint64_t(kv.page_bytes)};
  const cuuint32_t box[3] = {64, cuuint32_t(kv.page_size), 1}, every[3] = {1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, kv.base + kv.offsets[size_t(plane)], sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#if __CUDA_ARCH__ >= 900

__device__ inline void prefetch_map(const CUtensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
// From number `first` on of the rows of a page from `row` on; the barrier gets the bytes.
__device__ inline void copy_box(void* to, const CUtensorMap& map, int first, int row, int page, Barrier* b) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)), "l"(&map), "r"(first),
               "r"(row), "r"(page), "r"(shared_address(b))
               : "memory");
}
// The box from number `first` of row `row` on, from shared memory; await_stores() and its like wait for it.
__device__ inline void store_box(const CUtensorMap& map, int first, int row, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(first), "r"(row), "r"(shared_address(from)) : "memory");
}
__device__ inline void add_box(const CUtensorMap& map, int first, int row, const void* from) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(first), "r"(row), "r"(shared_address(from)) : "memory");
}

#endif

}  // namespace ridge::cuda
