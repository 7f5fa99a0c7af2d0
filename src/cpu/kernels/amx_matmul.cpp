// Matmul on AMX int8 tiles, for 16 tokens and more and weights in blocks of 32. Two panels at a time are unpacked into scratch as signed bytes, where 8 rows of
// 64 bytes (32 inputs x 16 outputs) are a B tile as they lie; 16 tokens x 32 codes are an A tile. One TDPBSSD gives the exact int32 sums of a block, which go
// through a buffer to the same float epilogue as everywhere. Tiles and vectors hardly overlap, so both must be short:
//
//   K is walked in chunks of kChunk blocks, all tokens for each: the panels' part of a chunk stays in the first-level cache, the tokens stream by, and the
//   float sums of (tokens x 2 panels) wait in scratch. Within a chunk the sums of kBuffered blocks are stored at a time (a tile that is read at once would
//   stall), and the epilogue keeps 16 tokens of a panel in registers over them. The tokens' scales lie 16 tokens side by side: a broadcast each, no pointers.
//
// Keeping four B tiles in registers while the tokens pass, each in one half of its rows so that an A tile serves two blocks, loads a third of the tiles and
// was slower (0.6 to 0.7 against 0.9 TOP/s on two Emerald Rapids cores): every fourth block the float sums go to memory and back.
//
//   tmm0 tmm1  sums [tokens][16 outputs] by panel      tmm2  A [tokens][32 codes]      tmm3 tmm4  B [8 g][16 outputs][4] by panel
#include <cstring>

#include "cpu/features.h"
#include "cpu/kernels/matmul_plan.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kTokens = 16, kBuffered = 4, kChunk = 16;
constexpr int64_t kGroup = 512;              // tokens whose float sums are kept at a time
constexpr int64_t kSumsOfTile = 2 * kTokens * 16;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 32, 64, 64};
  uint8_t rows[16] = {kTokens, kTokens, kTokens, 8, 8};
};
static_assert(sizeof(TileConfig) == 64);

// The scales of the tokens' blocks, and scale * sum where a weight has mins: [16 tokens][plane][2][block][16].
class Factors {
 public:
  static int64_t token_bytes(const Plan& plan) { return plan.n_planes * 2 * 4 * n_blocks(plan); }

  void keep(const Plan& plan, std::byte* memory) {
    plan_ = &plan;
    base_ = reinterpret_cast<float*>(memory);
    while (with_products_ < 3 && !plan.kinds[with_products_].product) ++with_products_;
  }

  void add(const QuantizedTokens& x, int64_t first, int64_t last) const {
    const int64_t n = n_blocks(*plan_);
    for (int64_t t = first; t < last; ++t) {
      IntInput in = x.input(t, with_products_ < 3 ? with_products_ : 0, true, plan_->n_planes);
      for (int plane = 0; plane < plan_->n_planes; ++plane, in = in.next_plane()) {
        float* out = const_cast<float*>(scales(t, plane)) + t % 16;
        for (int64_t b = 0; b < n; ++b) out[16 * b] = in.scales[b];
        if (with_products_ == 3) continue;
        for (int64_t b = 0; b < n; ++b) out[16 * (n + b)] = in.products[b];
      }
    }
  }

  // Of the 16 tokens that `token` is one of; the products follow the scales.
  const float* scales(int64_t token, int plane) const { return base_ + (token / 16 * plan_->n_planes + plane) * 2 * 16 * n_blocks(*plan_); }

  static int64_t n_blocks(const Plan& plan) { return 2 * superblocks_of(plan.op.x.cols); }

 private:
  const Plan* plan_ = nullptr;
  float* base_ = nullptr;
  int with_products_ = 0;                    // the kind of sums that are products; 3: none
};

// As Unpacked, but the codes are the signed numbers themselves.
template <class Format>
void unpack_signed(uint8_t* out, Bytes panel, int64_t n_superblocks) {
  unpack<Format>(out, panel, n_superblocks);
  const B offset = bset1(static_cast<uint8_t>(Format::kOffset));
  for (int64_t i = 0; i < n_superblocks; ++i, out += Unpacked<Format>::kBytes)
    for (int g = 0; g < 16; ++g) bstore(out + 64 * g, bsub(bload(out + 64 * g), offset));      // modulo 256: w + 128 - 128 too
}

// Where block b (counted from the panel's first) of an unpacked panel has its codes.
template <class Format> inline Bytes codes_of(Bytes panel, int64_t b) { return panel + b / 2 * Unpacked<Format>::kBytes + b % 2 * 512; }

// Sums of N blocks from `block`, 16 tokens by two panels: [block][panel][token][16].
template <class Format, int N>
[[gnu::always_inline]] inline void multiply(int32_t* sums, const int8_t* codes, int64_t stride, const Bytes (&panels)[2], int64_t block) {
#pragma GCC unroll kUnroll
  for (int b = 0; b < N; ++b, sums += kSumsOfTile) {
    _tile_loadd(2, codes + 32 * (block + b), stride);
    _tile_loadd(3, codes_of<Format>(panels[0], block + b), 64);
    _tile_zero(0);
    _tile_dpbssd(0, 2, 3);
    _tile_loadd(4, codes_of<Format>(panels[1], block + b), 64);
    _tile_zero(1);
    _tile_dpbssd(1, 2, 4);
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
  }
}

// The same blocks of one panel, added to the float sums [token][16] in order.
template <class Format, int N>
[[gnu::always_inline]] inline void add_blocks(float* out, const int32_t* sums, Bytes panel, int64_t block, const float* scales, const float* products) {
  using Source = Unpacked<Format>;
  F acc[kTokens];
#pragma GCC unroll kUnroll
  for (int t = 0; t < kTokens; ++t) acc[t] = load(out + 16 * t);
#pragma GCC unroll kUnroll
  for (int b = 0; b < N; ++b) {
    const Bytes s = panel + (block + b) / 2 * Source::kBytes;
    const F scale = Source::scale(s, b % 2);                                                   // `block` is even
#pragma GCC unroll kUnroll
    for (int t = 0; t < kTokens; ++t) {
      acc[t] = fma(to_float(iload(sums + kSumsOfTile * b + 16 * t)), mul(scale, set1(scales[16 * (block + b) + t])), acc[t]);
      if constexpr (Format::kMin) acc[t] = fma(Source::min(s, b % 2), set1(products[16 * (block + b) + t]), acc[t]);
    }
  }
#pragma GCC unroll kUnroll
  for (int t = 0; t < kTokens; ++t) store(out + 16 * t, acc[t]);
}

// Blocks [first, last) of 16 tokens by two panels.
template <class Format>
[[gnu::noinline]] void add_chunk(float* out, const int8_t* codes, int64_t stride, const Bytes (&panels)[2], int64_t first, int64_t last, const float* scales,
                                 const float* products) {
  alignas(64) int32_t sums[kBuffered * kSumsOfTile];
  int64_t b = first;
  for (; b + kBuffered <= last; b += kBuffered) {
    multiply<Format, kBuffered>(sums, codes, stride, panels, b);
    add_blocks<Format, kBuffered>(out, sums, panels[0], b, scales, products);
    add_blocks<Format, kBuffered>(out + 256, sums + 256, panels[1], b, scales, products);
  }
  for (; b < last; b += 2) {
    multiply<Format, 2>(sums, codes, stride, panels, b);
    add_blocks<Format, 2>(out, sums, panels[0], b, scales, products);
    add_blocks<Format, 2>(out + 256, sums + 256, panels[1], b, scales, products);
  }
}

inline void finish_tile(const float* sums, const Matmul& op, int i, int64_t panel, int64_t token, int64_t n_tokens) {
  if (n_tokens >= kTokens) {
    F tile[1][kTokens];
#pragma GCC unroll kUnroll
    for (int t = 0; t < kTokens; ++t) tile[0][t] = load(sums + 16 * t);
    return finish<1, kTokens>(tile, op, i, panel, token);
  }
  for (int64_t t = 0; t < n_tokens; ++t) {
    F tile[1][1] = {{load(sums + 16 * t)}};
    finish<1, 1>(tile, op, i, panel, token + t);
  }
}

// Two unpacked panels, and the float sums of a group of tokens.
int64_t own_bytes(int64_t cols) { return 2 * superblocks_of(cols) * 1536 + kGroup / kTokens * kSumsOfTile * 4; }

// Panels [first, last) of weight i; x and factors hold tokens [token_first, token_last). The last tile may reach past them: what it finds there is not used.
template <class Format>
void tile_panels(const Plan& plan, int i, int64_t first, int64_t last, const QuantizedTokens& x, const Factors& factors, int64_t token_first, int64_t token_last,
                 std::byte* own) {
  const Matmul& op = plan.op;
  const int64_t n_superblocks = superblocks_of(op.x.cols), n_blocks = 2 * n_superblocks, panel_bytes = n_superblocks * superblock_bytes(Format::kPanel);
  auto* unpacked = reinterpret_cast<uint8_t*>(own);
  auto* sums = reinterpret_cast<float*>(own + 2 * n_superblocks * 1536);
  const Bytes panels[2] = {unpacked, unpacked + n_superblocks * Unpacked<Format>::kBytes};
  const int64_t n_tokens = token_last - token_first;
  const int n_planes = planes_of(*op.w[i]);
  for (int64_t panel = first; panel < last; panel += 2) {
    const Bytes packed = reinterpret_cast<Bytes>(op.w[i]->packed.data) + panel * panel_bytes;
    unpack_signed<Format>(unpacked, packed, n_superblocks);
    if (panel + 1 < last) unpack_signed<Format>(const_cast<uint8_t*>(panels[1]), packed + panel_bytes, n_superblocks);      // else what lies there is not used
    const Bytes next = packed + 2 * panel_bytes, next_end = next + 2 * panel_bytes;
    Bytes wanted = next;                                            // the next pair comes to the second-level cache meanwhile
    for (int64_t group = 0; group < n_tokens; group += kGroup) {
      const int64_t end = group + kGroup < n_tokens ? group + kGroup : n_tokens, n_tiles = (end - group + kTokens - 1) / kTokens;
      for (int64_t j = 0; j < n_tiles * kSumsOfTile; j += 16) store(sums + j, zero());
      for (int plane = 0; plane < n_planes; ++plane)
        for (int64_t b = 0; b < n_blocks; b += kChunk) {
          const int64_t b_end = b + kChunk < n_blocks ? b + kChunk : n_blocks;
          for (int64_t tile = 0; tile < n_tiles; ++tile) {
            const int64_t token = group + tile * kTokens;
            const IntInput in = x.input(token, 0, false, n_planes);
            const int8_t* codes = in.codes + plane * in.plane_bytes;
            for (int line = 0; line < 8 && wanted < next_end; ++line, wanted += 64) prefetch(wanted);
            const float* scales = factors.scales(token, plane);
            add_chunk<Format>(sums + tile * kSumsOfTile, codes, in.stride, panels, b, b_end, scales, scales + 16 * n_blocks);
          }
        }
      for (int64_t tile = 0; tile < n_tiles; ++tile)
        for (int p = 0; p < 2 && panel + p < last; ++p)
          finish_tile(sums + tile * kSumsOfTile + 256 * p, op, i, panel + p, token_first + group + tile * kTokens, end - group - tile * kTokens);
    }
  }
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
  const TileConfig config;
  _tile_loadconfig(&config);
  Factors factors;
  sweep_many<2>(op, lane, own_bytes(op.x.cols), factors, [&](const Plan& plan, int i, int64_t a, int64_t b, const QuantizedTokens& x, int64_t first, int64_t last) {
    with_format(*op.w[i], [&](auto format) {
      using Format = decltype(format);
      if constexpr (Tiled<Format>) tile_panels<Format>(plan, i, a, b, x, factors, first, last, lane.own.data());
    });
  });
  _tile_release();
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
