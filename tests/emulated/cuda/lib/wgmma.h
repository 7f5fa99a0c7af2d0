// The warpgroup's products (src/cuda/lib/wgmma.h), each made when it is waited for: what of its operands was overwritten by then, or given back, shows.
#pragma once
#undef __CUDA_ARCH_FEAT_SM90_ALL
#define wgmma_tile_at ptx_wgmma_tile_at
#include "../../../../src/cuda/lib/wgmma.h"
#undef wgmma_tile_at
#define __CUDA_ARCH_FEAT_SM90_ALL

#include <map>
#include <vector>

namespace ridge::cuda {

struct Product {
  float* d;
  int n_tokens;
  const uint32_t* a;                         // null: `rows`
  uint64_t rows, b;
  bool fresh;
  bool is_half = false, is_transposed = false;
};
struct Products { std::vector<std::vector<Product>> groups{1}; };
inline Products& products() {
  static std::map<int, Products> of_thread;
  return of_thread[emulated::this_thread()];
}

inline uint16_t number_at(uint32_t shared) {
  uint16_t bits;
  std::memcpy(&bits, emulated::shared_memory() + shared, 2);
  return bits;
}
// Number k of a row of 128 bytes, chunks swizzled.
inline uint16_t swizzled_number_at(uint32_t start, uint32_t row, uint32_t k) {
  const uint32_t at = start + row * 128 + 2 * k;
  return number_at(at ^ (at >> 7 & 7) << 4);
}
inline void make(const Product& p) {
  const auto number = [&](uint16_t bits) { return p.is_half ? f16_to_f32(bits) : bf16_to_f32(bits); };
  const uint32_t thread = threadIdx.x % 128, warp = thread / 32, g = thread % 32 / 4, q = thread % 4;
  float a[2][16];                                                            // rows g and g + 8 of the warp's
  if (p.a) {
    for (int half = 0; half < 2; ++half) {
      const uint64_t* const brought = emulated::exchange(uint64_t{p.a[2 * half + 1]} << 32 | p.a[2 * half]);
      for (uint32_t of = 0; of < 4; ++of)
        for (int r = 0; r < 2; ++r)
          for (int i = 0; i < 2; ++i) a[r][8 * half + 2 * int(of) + i] = number(uint16_t(brought[4 * g + of] >> (32 * r + 16 * i)));
    }
  } else if (p.rows >> 62 & 1) {                                             // rows of 128 bytes
    for (uint32_t r = 0; r < 2; ++r)
      for (uint32_t k = 0; k < 16; ++k) a[r][k] = number(swizzled_number_at(uint32_t(p.rows & 0x3FFF) << 4, 16 * warp + g + 8 * r, k));
  } else {                                                                   // eight rows of 16 bytes after eight rows, without a swizzle
    const uint32_t start = uint32_t(p.rows & 0x3FFF) << 4, chunks = uint32_t(p.rows >> 16 & 0x3FFF) << 4, eights = uint32_t(p.rows >> 32 & 0x3FFF) << 4;
    for (uint32_t r = 0; r < 2; ++r)
      for (uint32_t k = 0; k < 16; ++k) a[r][k] = number(number_at(start + (2 * warp + r) * eights + k / 8 * chunks + g * 16 + k % 8 * 2));
  }
  const uint32_t start = uint32_t(p.b & 0x3FFF) << 4, panel_bytes = uint32_t(p.b >> 16 & 0x3FFF) << 4;
  for (int j = 0; j < p.n_tokens / 2; ++j) {
    const uint32_t token = uint32_t(j / 4 * 8 + j % 2) + 2 * q;
    float sum = p.fresh ? 0.0f : p.d[j];
    for (uint32_t k = 0; k < 16; ++k) {
      sum += a[j / 2 % 2][k] * number(p.is_transposed ? swizzled_number_at(start + token / 64 * panel_bytes, k, token % 64) : swizzled_number_at(start, token, k));
    }
    p.d[j] = sum;
  }
}

inline void wgmma_fence() {}
inline void wgmma_commit() { products().groups.emplace_back(); }
template <int kPending>
void wgmma_await() {
  auto& groups = products().groups;
  while (groups.size() > size_t(kPending) + 1) {
    const std::vector<Product> now = groups.front();
    groups.erase(groups.begin());
    for (const Product& p : now) make(p);
  }
  emulated::exchange(0);                                                     // a warp has waited together
}
template <int n>
void hold(float (&)[n]) {}
template <int m, int n>
void hold_all(float (&)[m][n]) {}
inline void hold(uint32_t (&)[4]) {}
inline uint64_t wgmma_tile_at(uint32_t low) { return uint64_t{kTileHigh} << 32 | low; }
template <bool kFresh = false, int n>
void wgmma_groups(float (&d)[n][4], const uint32_t (&a)[4], uint64_t b) { products().groups.back().push_back({&d[0][0], 8 * n, a, 0, b, kFresh}); }
template <bool kFresh = false, int n>
void wgmma_groups(float (&d)[n][4], uint64_t a, uint64_t b) { products().groups.back().push_back({&d[0][0], 8 * n, nullptr, a, b, kFresh}); }
template <int n>
void wgmma(float (&d)[n], const uint32_t (&a)[4], uint64_t b, bool fresh) { products().groups.back().push_back({d, 2 * n, a, 0, b, fresh}); }
template <int n>
void wgmma(float (&d)[n], uint64_t a, uint64_t b, bool fresh) { products().groups.back().push_back({d, 2 * n, nullptr, a, b, fresh}); }

// Those of attention.
template <class T, bool kFresh>
void wgmma(float (&d)[64], uint64_t a, uint64_t b) { products().groups.back().push_back({d, 128, nullptr, a, b, kFresh, std::is_same_v<T, __half>}); }
template <class T, bool kTransposed, bool kFresh = false, int n>
void wgmma(float (&d)[n], const uint32_t (&a)[4], uint64_t b) { products().groups.back().push_back({d, 2 * n, a, 0, b, kFresh, std::is_same_v<T, __half>, kTransposed}); }
template <class T, bool kTransposed, bool kFresh, int n>
void wgmma(float (&d)[n], uint64_t a, uint64_t b) { products().groups.back().push_back({d, 2 * n, nullptr, a, b, kFresh, std::is_same_v<T, __half>, kTransposed}); }
inline void end_block(int) {}

}  // namespace ridge::cuda
