// Boxes of outputs by the tensor copy engine (src/cuda/lib/tensor_map.h).
#pragma once
#include "cuda/lib/async_copy.h"
#include "cuda/lib/wgmma.h"

struct CUtensorMap { float* data; int64_t rows, cols, stride; int n_rows; };

namespace ridge::cuda {

inline bool map_outputs(CUtensorMap& map, float* data, int64_t rows, int64_t cols, int64_t stride, int n_rows) {
  map = {data, rows, cols, stride, n_rows};
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}
inline void prefetch_map(const CUtensorMap&) {}

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
