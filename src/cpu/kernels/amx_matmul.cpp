// Matmul on AMX int8 tiles, for 16 tokens and more and weights in blocks of 32. A panel is unpacked into scratch as signed bytes, where 8 rows of 64 bytes
// (32 inputs x 16 outputs) are a B tile as they lie; 16 tokens x 32 codes are an A tile. One TDPBSSD gives the exact int32 sums of a block; they go through a
// buffer of 1 KB to the same float epilogue as everywhere, one block late, so that tiles and vectors can overlap.
//
//   tmm0 tmm1  sums [tokens][16 outputs] of the even and odd block      tmm2 tmm4  A [tokens][32 codes]      tmm3 tmm5  B [8 g][16 outputs][4]
#include <cstring>

#include "cpu/features.h"
#include "cpu/kernels/matmul_plan.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kTokens = 16;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  explicit TileConfig(int n_tokens) {
    for (const int sums : {0, 1}) row_bytes[sums] = 64, rows[sums] = static_cast<uint8_t>(n_tokens);
    for (const int a : {2, 4}) row_bytes[a] = 32, rows[a] = static_cast<uint8_t>(n_tokens);
    for (const int b : {3, 5}) row_bytes[b] = 64, rows[b] = 8;
  }
};
static_assert(sizeof(TileConfig) == 64);

// As Unpacked, but the codes are the signed numbers themselves.
template <class Format>
void unpack_signed(uint8_t* out, Bytes panel, int64_t n_superblocks) {
  unpack<Format>(out, panel, n_superblocks);
  const B offset = bset1(static_cast<uint8_t>(Format::kOffset));
  for (int64_t i = 0; i < n_superblocks; ++i, out += Unpacked<Format>::kBytes)
    for (int g = 0; g < 16; ++g) bstore(out + 64 * g, bsub(bload(out + 64 * g), offset));      // modulo 256: w + 128 - 128 too
}

// One block's sums of up to 16 tokens, added to acc.
template <class Format>
[[gnu::always_inline]] inline void add_block(F (&acc)[kTokens], const int32_t* sums, Bytes s, int b, const IntInput& x, int64_t block, int n_tokens) {
  const F scale = Unpacked<Format>::scale(s, b);
#pragma GCC unroll kUnroll
  for (int t = 0; t < kTokens; ++t) {
    const int64_t skip = (t < n_tokens ? t : 0) * x.stride;                                    // tokens that are not there repeat the first
    const F scale_x = set1(at_bytes(x.scales + block, skip));
    acc[t] = fma(to_float(iload(sums + 16 * t)), mul(scale, scale_x), acc[t]);
    if constexpr (Format::kMin) acc[t] = fma(mul(Unpacked<Format>::min(s, b), scale_x), set1(static_cast<float>(at_bytes(x.sums + block, skip))), acc[t]);
  }
}

template <class Format>
[[gnu::always_inline]] inline void tile_of_tokens(F (&acc)[kTokens], Bytes panel, int64_t n_superblocks, IntInput x, int n_tokens) {
  alignas(64) int32_t even[kTokens * 16] = {}, odd[kTokens * 16] = {};
  constexpr int64_t kBytes = Unpacked<Format>::kBytes;
#pragma GCC unroll kUnroll
  for (int t = 0; t < kTokens; ++t) acc[t] = zero();
  for (; x.n_planes > 0; x = x.next_plane()) {
    for (int64_t i = 0; i < n_superblocks; ++i) {
      const Bytes s = panel + i * kBytes;
      _tile_zero(0);
      _tile_loadd(2, x.codes + 64 * i, x.stride);
      _tile_loadd(3, s, 64);
      _tile_dpbssd(0, 2, 3);
      _tile_stored(0, even, 64);
      if (i > 0) add_block<Format>(acc, odd, s - kBytes, 1, x, 2 * i - 1, n_tokens);
      _tile_zero(1);
      _tile_loadd(4, x.codes + 64 * i + 32, x.stride);
      _tile_loadd(5, s + 512, 64);
      _tile_dpbssd(1, 4, 5);
      _tile_stored(1, odd, 64);
      add_block<Format>(acc, even, s, 0, x, 2 * i, n_tokens);
    }
    add_block<Format>(acc, odd, panel + (n_superblocks - 1) * kBytes, 1, x, 2 * n_superblocks - 1, n_tokens);
  }
}

template <class Format>
[[gnu::noinline]] void run_tile(const Matmul& op, int i, Bytes panel_data, int64_t panel, int64_t token, const IntInput& x, int n_tokens) {
  F acc[kTokens];
  const int64_t n_superblocks = superblocks_of(op.x.cols);
  if (n_tokens == kTokens) {
    tile_of_tokens<Format>(acc, panel_data, n_superblocks, x, kTokens);
    F tile[1][kTokens];
#pragma GCC unroll kUnroll
    for (int t = 0; t < kTokens; ++t) tile[0][t] = acc[t];
    finish<1, kTokens>(tile, op, i, panel, token);
  } else {
    tile_of_tokens<Format>(acc, panel_data, n_superblocks, x, n_tokens);
    for (int t = 0; t < n_tokens; ++t) {
      F tile[1][1] = {{acc[t]}};
      finish<1, 1>(tile, op, i, panel, token + t);
    }
  }
}

template <class Format>
void tile_panels(const Plan& plan, int i, int64_t first, int64_t last, const QuantizedTokens& x, int64_t token_first, int64_t token_last, std::byte* own) {
  const Matmul& op = plan.op;
  auto* scratch = reinterpret_cast<uint8_t*>(own);
  const int64_t n_superblocks = superblocks_of(op.x.cols), panel_bytes = n_superblocks * superblock_bytes(Format::kPanel);
  const TileConfig full(kTokens);
  for (int64_t panel = first; panel < last; ++panel) {
    unpack_signed<Format>(scratch, reinterpret_cast<Bytes>(op.w[i]->packed.data) + panel * panel_bytes, n_superblocks);
    _tile_loadconfig(&full);
    int64_t token = token_first;
    for (; token + kTokens <= token_last; token += kTokens) run_tile<Format>(op, i, scratch, panel, token, plan.input(x, token - token_first, i), kTokens);
    if (token == token_last) continue;
    const TileConfig rest(static_cast<int>(token_last - token));
    _tile_loadconfig(&rest);
    run_tile<Format>(op, i, scratch, panel, token, plan.input(x, token - token_first, i), static_cast<int>(token_last - token));
  }
  _tile_release();
}

template <class Format> concept Tiled = Coded<Format> && requires { requires Format::kBlock == 32; };

}  // namespace

bool matrix_supports(const Matmul& op) {
  if (op.x.rows < kTokens || !has_feature("amx_int8")) return false;
  for (const Weight* w : op.w) {
    if (!w) continue;
    const Panel panel = panel_of(w->format);
    if (!integer(*w) || (panel != Panel::q8_0 && panel != Panel::q4_0 && panel != Panel::q4_1)) return false;
  }
  return true;
}

void run_matrix(const Matmul& op, Lane& lane) {
  sweep_many<1>(op, lane, superblocks_of(op.x.cols) * 1536, [&](const Plan& plan, int i, int64_t a, int64_t b, const QuantizedTokens& x, int64_t first, int64_t last) {
    with_format(*op.w[i], [&](auto format) {
      using Format = decltype(format);
      if constexpr (Tiled<Format>) tile_panels<Format>(plan, i, a, b, x, first, last, lane.own.data());
    });
  });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
