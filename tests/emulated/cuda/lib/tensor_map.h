// Boxes of outputs, and of K and V, by the tensor copy engine (src/cuda/lib/tensor_map.h).
#pragma once
#include "backend/kv_spec.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/wgmma.h"

struct CUtensorMap {
  float* data;                               // of outputs
  int64_t rows, cols, stride;
  int n_rows;
  const std::byte* pages = nullptr;          // of a plane
  int64_t page_bytes = 0, row_bytes = 0;
  int page_size = 0;
};

namespace ridge::cuda {

inline bool map_outputs(CUtensorMap& map, float* data, int64_t rows, int64_t cols, int64_t stride, int n_rows) {
  map = {.data = data, .rows = rows, .cols = cols, .stride = stride, .n_rows = n_rows};
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}
inline bool map_plane(CUtensorMap& map, const KvRef& kv, int plane) {
  map = {.data = nullptr, .rows = 0, .cols = 0, .stride = 0, .n_rows = 0, .pages = kv.base + kv.offsets[size_t(plane)], .page_bytes = kv.page_bytes, .row_bytes = 2 * kv.planes[size_t(plane)].head_dim, .page_size = kv.page_size};
  return true;
}
inline void prefetch_map(const CUtensorMap&) {}

inline void copy_box(void* to, const CUtensorMap& map, int first, int row, int page, Barrier* b) {
  CHECK_EQ(__cvta_generic_to_shared(to) % 1024, 0u);
  const std::byte* const from = map.pages + page * map.page_bytes + row * map.row_bytes + 2 * first;
  emulated::later(
      [](const uint64_t (&with)[4]) {
        const CUtensorMap& m = *reinterpret_cast<const CUtensorMap*>(with[2]);
        for (int r = 0; r < m.page_size; ++r)
          for (int c = 0; c < 8; ++c) std::memcpy(reinterpret_cast<std::byte*>(with[0]) + swizzled(r, c), reinterpret_cast<const std::byte*>(with[1]) + r * m.row_bytes + 16 * c, 16);
        change(reinterpret_cast<Barrier*>(with[3]), 0, -int64_t{m.page_size} * 128);
      },
      {reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), reinterpret_cast<uintptr_t>(&map), reinterpret_cast<uintptr_t>(b)});
}

template <bool kAdds>
void leave_as_box(const CUtensorMap& map, int first, int row, const void* from) {
  CHECK_EQ(__cvta_generic_to_shared(from) % 1024, 0u);
  leaving().groups.back().push_back({[](const Leaving::Store& s) {
                                       const CUtensorMap& m = *static_cast<const CUtensorMap*>(s.to);
                                       for (int r = 0; r < m.n_rows; ++r)
                                         for (int c = 0; c < 32; ++c) {
                                           if (s.at[1] + r >= m.rows || s.at[0] + c >= m.cols) continue;
                                           const float v = *reinterpret_cast<const float*>(static_cast<const std::byte*>(s.from) + swizzled(r, c / 4) + c % 4 * 4);
                                           float& to = m.data[(s.at[1] + r) * m.stride + s.at[0] + c];
                                           to = kAdds ? to + v : v;
                                         }
                                     },
                                     const_cast<CUtensorMap*>(&map), from, {first, row}});
}
inline void store_box(const CUtensorMap& map, int first, int row, const void* from) { leave_as_box<false>(map, first, row, from); }
inline void add_box(const CUtensorMap& map, int first, int row, const void* from) { leave_as_box<true>(map, first, row, from); }

}  // namespace ridge::cuda
