// The warpgroup's products (src/cuda/lib/wgmma.h), each made when it is waited for: what of its operands was overwritten by then, or given back, shows.
#pragma once
#undef __CUDA_ARCH_FEAT_SM90_ALL
#define wgmma_tile_at ptx_wgmma_tile_at
#include "../../../../src/cuda/lib/wgmma.h"
#undef wgmma_tile_at
#define __CUDA_ARCH_FEAT_SM90_ALL

#include <algorithm>
#include <cstring>
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

// Numbers as they lie in shared memory, and eight of a row of 128 bytes from number k on, chunks swizzled.
template <bool kIsHalf>
float number(uint16_t bits) { return kIsHalf ? f16_to_f32(bits) : bf16_to_f32(bits); }
template <bool kIsHalf>
void take_eight(float* to, const std::byte* from) {
  uint16_t bits[8];
  std::memcpy(bits, from, 16);
  for (int i = 0; i < 8; ++i) to[i] = number<kIsHalf>(bits[i]);
}
inline uint32_t swizzled(uint32_t at) { return at ^ (at >> 7 & 7) << 4; }

template <bool kIsHalf, bool kTransposed>
void make(const Product& p) {
  const std::byte* const shared = emulated::shared_memory();
  const uint32_t thread = threadIdx.x % 128, warp = thread / 32, g = thread % 32 / 4, q = thread % 4;
  float a[2][16];                                                            // rows g and g + 8 of the warp's
  if (p.a) {
    for (int half = 0; half < 2; ++half) {
      const uint64_t* const brought = emulated::exchange(uint64_t{p.a[2 * half + 1]} << 32 | p.a[2 * half]);
      for (uint32_t of = 0; of < 4; ++of)
        for (int r = 0; r < 2; ++r)
          for (int i = 0; i < 2; ++i) a[r][8 * half + 2 * int(of) + i] = number<kIsHalf>(uint16_t(brought[4 * g + of] >> (32 * r + 16 * i)));
    }
  } else {                                                                   // rows of 128 bytes; or eight rows of 16 bytes after eight rows, without a swizzle
    const uint32_t start = uint32_t(p.rows & 0x3FFF) << 4, chunks = uint32_t(p.rows >> 16 & 0x3FFF) << 4, eights = uint32_t(p.rows >> 32 & 0x3FFF) << 4;
    const bool in_rows = p.rows >> 62 & 1;
    for (uint32_t r = 0; r < 2; ++r)
      for (uint32_t half = 0; half < 2; ++half)
        take_eight<kIsHalf>(a[r] + 8 * half, shared + (in_rows ? swizzled(start + (16 * warp + g + 8 * r) * 128 + 16 * half) : start + (2 * warp + r) * eights + half * chunks + g * 16));
  }
  const uint32_t start = uint32_t(p.b & 0x3FFF) << 4, panel_bytes = uint32_t(p.b >> 16 & 0x3FFF) << 4;
  for (int j = 0; j < p.n_tokens / 2; j += 4) {                              // eight tokens, of which a lane has two
    float b[2][16], sum[4];
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t token = uint32_t(2 * j) + 2 * q + i;
      if constexpr (kTransposed) {
        for (uint32_t k = 0; k < 16; ++k) {
          uint16_t bits;
          std::memcpy(&bits, shared + swizzled(start + token / 64 * panel_bytes + k * 128 + 2 * (token % 64)), 2);
          b[i][k] = number<kIsHalf>(bits);
        }
      } else {
        for (uint32_t half = 0; half < 2; ++half) take_eight<kIsHalf>(b[i] + 8 * half, shared + swizzled(start + token * 128 + 16 * half));
      }
    }
    for (int i = 0; i < 4; ++i) sum[i] = p.fresh ? 0.0f : p.d[j + i];
    for (int k = 0; k < 16; ++k)
      for (int i = 0; i < 4; ++i) sum[i] += a[i / 2][k] * b[i % 2][k];
    std::copy(sum, sum + 4, p.d + j);
  }
}
inline void make(const Product& p) {
  if (p.is_half) return p.is_transposed ? make<true, true>(p) : make<true, false>(p);
  return p.is_transposed ? make<false, true>(p) : make<false, false>(p);
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
