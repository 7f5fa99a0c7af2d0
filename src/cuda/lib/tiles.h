// The input of a matmul for many tokens: bf16 tiles [block of 192 tokens][unit][192 tokens x 64 inputs], where a token's 128 bytes of a unit are swizzled as wgmma wants
// them (lib/wgmma.h) and in the order of the units' operands (lib/unit.h): input 16 q + r of a unit is number 2 q + r % 2 of chunk r / 2, and in halves input 32 h + 8 q + r number
// 2 q + r % 2 of chunk 4 h + r / 2. Whoever makes the input may write it here at once; tokens that pad the last block may hold anything, since no other token sees them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ridge::cuda {

constexpr int kTileTokens = 192, kTileBytes = kTileTokens * 128;

// The byte where inputs k and k + 1 (k even) of a token start: among its own, and among all.
__host__ __device__ constexpr int row_place(int token, int k, bool halves) {
  const int chunk = halves ? k % 64 / 32 * 4 + k % 8 / 2 : k % 16 / 2, quarter = halves ? k % 32 / 8 : k % 64 / 16;
  return k / 64 * 128 + ((chunk ^ (token % kTileTokens & 7)) << 4) + quarter * 4;
}
__host__ __device__ constexpr int64_t tile_place(int token, int k, int n_units, bool halves) {
  return (int64_t{token / kTileTokens} * n_units + k / 64) * kTileBytes + token % kTileTokens * 128 + row_place(token, k % 64, halves);
}
// The start of a token's 128 bytes of the unit of input k.
__host__ __device__ constexpr int64_t line_place(int token, int k, int n_units) { return (int64_t{token / kTileTokens} * n_units + k / 64) * kTileBytes + token % kTileTokens * 128; }

struct Tiles {
  std::byte* data = nullptr;                 // null: nowhere
  bool halves = false;
  explicit operator bool() const { return data != nullptr; }
  bool operator==(const Tiles&) const = default;
};

constexpr int64_t tiles_bytes(int64_t n_tokens, int64_t n_inputs) {
  return (n_tokens + kTileTokens - 1) / kTileTokens * ((n_inputs + 63) / 64) * kTileBytes;
}

}  // namespace ridge::cuda
