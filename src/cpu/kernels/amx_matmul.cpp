// Matmul on AMX int8 tiles, for 16 tokens and more and weights in blocks of 32 or 64. Panels are unpacked into scratch as signed bytes, where 8 or 16 rows of 64
// bytes (32 or 64 inputs x 16 outputs) are a B tile as they lie; 16 tokens x 32 or 64 codes are an A tile. One TDPBSSD gives the exact int32 sums of a block, which
// go through a buffer to the same float epilogue as everywhere. It takes no longer for 64 inputs than for 32, nor do its store and the epilogue.
//
// What bounds it, per tile of 16 tokens x 16 outputs x 32 inputs on Emerald Rapids: TDP 6.5 ns, its store 6.5, two loads 5, the epilogue 9; and while tile
// instructions are about, vector instructions issue at half their rate (an epilogue with one small tile load in it takes 17 to 19 ns), so that nothing is won by
// mixing the two. Hence:
//   - a batch of panels is unpacked at a time and lies in the second-level cache; two tiles of 16 tokens pass over all of it, a chunk of K at a time: their codes
//     stay in the first level, and what one of them fetches of a pair of panels serves the other (840 GOP/s on two threads, one tile alone 660 to 740)
//   - tile work comes in runs of kBuffered blocks by two panels, then their epilogue, which keeps 16 tokens of a panel in registers
//   - four tiles of sums take turns, and a tile is stored while the next two products run (9 ns for what takes 13 when it is stored at once)
//   - the tokens' scales lie 16 tokens side by side: a broadcast each, no pointers
// Epilogues of 8 lanes, which would leave the port that both want to the tiles, are slower (0.45 against 0.6 TOP/s a core). Nor is there a gain in two tiles of
// tokens by two panels at a time (four loads for four products), half the chunk, or asking for the next blocks or the next tokens' codes beforehand: on average of 12
// runs on two busy cores 905 GOP/s with blocks of 64 and 604 with q8_0 as it is, 783 to 912 and 527 to 572 with those.
//
//   tmm0-3  sums [tokens][16 outputs], of two blocks by two panels      tmm4 tmm5  A [tokens][32 or 64 codes]      tmm6 tmm7  B [8 or 16 g][16 outputs][4] by panel
#include <algorithm>

#include "cpu/features.h"
#include "cpu/kernels/matmul_plan.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kTokens = 16, kTiles = 2, kBuffered = 4, kChunk = 512;        // kChunk: inputs
constexpr int64_t kMostPanels = 16, kBatchBytes = 512 << 10;       // of unpacked panels at a time
constexpr int64_t kSumsOfTile = kTokens * 16;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 32, 32, 64, 64};
  uint8_t rows[16] = {kTokens, kTokens, kTokens, kTokens, kTokens, kTokens, 8, 8};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig tiles_of_64() {
  TileConfig config;
  config.row_bytes[4] = config.row_bytes[5] = 64;
  config.rows[6] = config.rows[7] = 16;
  return config;
}
constexpr TileConfig kTilesOf32, kTilesOf64 = tiles_of_64();      // not on the stack: to GCC the instruction reads 8 bytes of it, and the stores of the others may go

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
        for (int64_t b = 0; b < n; ++b) out[16 * b] = in.scales[b * (plan_->block() / 32)];
        if (with_products_ == 3) continue;
        for (int64_t b = 0; b < n; ++b) out[16 * (n + b)] = in.products[b];
      }
    }
  }

  // Of the 16 tokens that `token` is one of; the products follow the scales.
  const float* scales(int64_t token, int plane) const { return base_ + (token / 16 * plan_->n_planes + plane) * 2 * 16 * n_blocks(*plan_); }

  static int64_t n_blocks(const Plan& plan) { return superblocks_of(plan.op.x.cols) * 64 / plan.block(); }

 private:
  const Plan* plan_ = nullptr;
  float* base_ = nullptr;
  int with_products_ = 0;                    // the kind of sums that are products; 3: none
};

// As Unpacked, but the codes are the signed numbers themselves.
template <class Format>
void unpack_signed(uint8_t* out, Bytes panel, int64_t n_superblocks) {
  using To = Unpacked<Format>;
  const B offset = bset1(static_cast<uint8_t>(Format::kOffset));
  for (int64_t i = 0; i < n_superblocks; ++i, out += To::kBytes, panel += superblock_bytes(Format::kPanel)) {
#pragma GCC unroll kUnroll
    for (int g = 0; g < 16; ++g) bstore(out + 64 * g, bsub(Format::codes(panel, g), offset));      // modulo 256: w + 128 - 128 too
#pragma GCC unroll kUnroll
    for (int b = 0; b < To::kBlocks; ++b) {
      store(reinterpret_cast<float*>(out + 1024 + 64 * b), Format::scale(panel, b));
      if constexpr (Format::kMin) store(reinterpret_cast<float*>(out + 1024 + 64 * (To::kBlocks + b)), Format::min(panel, b));
    }
  }
}

// Where block b (counted from the panel's first) of an unpacked panel has its codes.
template <class Format> inline Bytes codes_of(Bytes panel, int64_t b) {
  constexpr int kBlocks = Unpacked<Format>::kBlocks;
  return panel + b / kBlocks * Unpacked<Format>::kBytes + b % kBlocks * 512;
}

// Sums of N blocks (an even number, or one) from `block`, 16 tokens by two panels: [panel][block][token][16].
template <class Format, int N>
[[gnu::always_inline]] inline void multiply(int32_t* sums, const int8_t* codes, int64_t stride, const Bytes (&panels)[2], int64_t block) {
  codes += Format::kBlock * block;
  if constexpr (N == 1) {
    _tile_loadd(4, codes, stride);
    _tile_loadd(6, codes_of<Format>(panels[0], block), 64);
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, codes_of<Format>(panels[1], block), 64);
    _tile_zero(1);
    _tile_dpbssd(1, 4, 7);
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + kSumsOfTile, 64);
    return;
  }
#pragma GCC unroll kUnroll
  for (int b = 0; b < N; b += 2) {
    _tile_loadd(4, codes + Format::kBlock * b, stride);
    _tile_loadd(6, codes_of<Format>(panels[0], block + b), 64);
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
    if (b > 0) _tile_stored(2, sums + kSumsOfTile * (b - 1), 64);
    _tile_loadd(7, codes_of<Format>(panels[1], block + b), 64);
    _tile_zero(1);
    _tile_dpbssd(1, 4, 7);
    if (b > 0) _tile_stored(3, sums + kSumsOfTile * (N + b - 1), 64);
    _tile_loadd(5, codes + Format::kBlock * (b + 1), stride);
    _tile_loadd(6, codes_of<Format>(panels[0], block + b + 1), 64);
    _tile_zero(2);
    _tile_dpbssd(2, 5, 6);
    _tile_stored(0, sums + kSumsOfTile * b, 64);
    _tile_loadd(7, codes_of<Format>(panels[1], block + b + 1), 64);
    _tile_zero(3);
    _tile_dpbssd(3, 5, 7);
    _tile_stored(1, sums + kSumsOfTile * (N + b), 64);
  }
  _tile_stored(2, sums + kSumsOfTile * (N - 1), 64);
  _tile_stored(3, sums + kSumsOfTile * (2 * N - 1), 64);
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
    constexpr int kBlocks = Source::kBlocks;
    const Bytes s = panel + (block + b) / kBlocks * Source::kBytes;
    const F scale = Source::scale(s, b % kBlocks);                                             // `block` is even where a superblock has two
#pragma GCC unroll kUnroll
    for (int t = 0; t < kTokens; ++t) {
      acc[t] = fma(to_float(iload(sums + kSumsOfTile * b + 16 * t)), mul(scale, set1(scales[16 * (block + b) + t])), acc[t]);
      if constexpr (Format::kMin) acc[t] = fma(Source::min(s, b % kBlocks), set1(products[16 * (block + b) + t]), acc[t]);
    }
  }
#pragma GCC unroll kUnroll
  for (int t = 0; t < kTokens; ++t) store(out + 16 * t, acc[t]);
}

// Blocks [first, last) of 16 tokens by two panels.
template <class Format>
[[gnu::noinline]] void add_chunk(float* out, const int8_t* codes, int64_t stride, const Bytes (&panels)[2], int64_t first, int64_t last, const float* scales,
                                 const float* products) {
  alignas(64) int32_t sums[2 * kBuffered * kSumsOfTile];
  int64_t b = first;
  for (; b + kBuffered <= last; b += kBuffered) {
    multiply<Format, kBuffered>(sums, codes, stride, panels, b);
    for (int p = 0; p < 2; ++p) add_blocks<Format, kBuffered>(out + kSumsOfTile * p, sums + kBuffered * kSumsOfTile * p, panels[p], b, scales, products);
  }
  for (; b + 2 <= last; b += 2) {
    multiply<Format, 2>(sums, codes, stride, panels, b);
    for (int p = 0; p < 2; ++p) add_blocks<Format, 2>(out + kSumsOfTile * p, sums + 2 * kSumsOfTile * p, panels[p], b, scales, products);
  }
  if constexpr (Format::kBlock == 64)
    if (b < last) {
      multiply<Format, 1>(sums, codes, stride, panels, b);
      for (int p = 0; p < 2; ++p) add_blocks<Format, 1>(out + kSumsOfTile * p, sums + kSumsOfTile * p, panels[p], b, scales, products);
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

// Unpacked panels that are worked on at a time: an even number.
int64_t batch_of(int64_t cols) { return std::clamp<int64_t>(kBatchBytes / (superblocks_of(cols) * 1280) / 2 * 2, 2, kMostPanels); }

// The batch, and the float sums of kTiles tiles of tokens.
int64_t own_bytes(int64_t cols) { return batch_of(cols) * (superblocks_of(cols) * 1280 + kTiles * kSumsOfTile * 4); }

// Panels [first, last) of weight i; x and factors hold tokens [token_first, token_last). The last tile may reach past them: what it finds there is not used.
template <class Format>
void tile_panels(const Plan& plan, int i, int64_t first, int64_t last, const QuantizedTokens& x, const Factors& factors, int64_t token_first, int64_t token_last,
                 std::byte* own) {
  const Matmul& op = plan.op;
  const int64_t n_superblocks = superblocks_of(op.x.cols), n_blocks = n_superblocks * Unpacked<Format>::kBlocks, panel_bytes = n_superblocks * superblock_bytes(Format::kPanel);
  const int64_t unpacked_bytes = n_superblocks * Unpacked<Format>::kBytes, most = batch_of(op.x.cols), n_tokens = token_last - token_first;
  auto* sums = reinterpret_cast<float*>(own);                       // [tile][panel][token][16]
  auto* unpacked = reinterpret_cast<uint8_t*>(own + kTiles * most * kSumsOfTile * 4);
  const int n_planes = planes_of(*op.w[i]);
  const int64_t n_chunks = std::max<int64_t>(1, n_superblocks * 64 / kChunk), chunk = ((n_blocks + 1) / 2 + n_chunks - 1) / n_chunks * 2;      // 576 inputs are one chunk, not 512 and 64
  for (int64_t panel = first; panel < last; panel += most) {
    const int64_t n = last - panel < most ? last - panel : most, n_sums = (n + n % 2) * kSumsOfTile;
    const Bytes packed = reinterpret_cast<Bytes>(op.w[i]->packed.data) + panel * panel_bytes;
    for (int64_t p = 0; p < n; ++p) unpack_signed<Format>(unpacked + p * unpacked_bytes, packed + p * panel_bytes, n_superblocks);
    Bytes wanted = packed + n * panel_bytes;                        // the next batch comes to the second-level cache meanwhile
    const Bytes wanted_end = wanted + n * panel_bytes;
    for (int64_t group = 0; group < n_tokens; group += kTiles * kTokens) {
      const int64_t n_tiles = std::min<int64_t>(kTiles, (n_tokens - group + kTokens - 1) / kTokens);
      for (int64_t j = 0; j < n_tiles * n_sums; j += 16) store(sums + j, zero());
      for (int plane = 0; plane < n_planes; ++plane)
        for (int64_t b = 0; b < n_blocks; b += chunk) {
          const int64_t b_end = b + chunk < n_blocks ? b + chunk : n_blocks;
          for (int64_t p = 0; p < n; p += 2) {
            const Bytes pair[2] = {unpacked + p * unpacked_bytes, unpacked + (p + 1 < n ? p + 1 : p) * unpacked_bytes};      // an odd last one twice, stored once
            for (int64_t tile = 0; tile < n_tiles; ++tile) {
              const int64_t token = group + tile * kTokens;
              const IntInput in = x.input(token, 0, false, n_planes);
              const float* scales = factors.scales(token, plane);
              for (int line = 0; line < 8 && wanted < wanted_end; ++line, wanted += 64) prefetch(wanted);
              add_chunk<Format>(sums + tile * n_sums + p * kSumsOfTile, in.codes + plane * in.plane_bytes, in.stride, pair, b, b_end, scales, scales + 16 * n_blocks);
            }
          }
        }
      for (int64_t tile = 0; tile < n_tiles; ++tile)
        for (int64_t p = 0; p < n; ++p)
          finish_tile(sums + tile * n_sums + p * kSumsOfTile, op, i, panel + p, token_first + group + tile * kTokens, n_tokens - group - tile * kTokens);
    }
  }
}

template <class Format> concept Tiled = Coded<Format> && requires { requires Format::kBlock >= 32; };

}  // namespace

bool matrix_supports(const Matmul& op) {
  if (op.x.rows < kTokens || !has_feature("amx_int8")) return false;
  for (const Weight* w : op.w) {
    if (!w) continue;
    const Panel panel = panel_of(*w);
    if (!integer(*w) || (panel != Panel::q8_0 && panel != Panel::q4_0 && panel != Panel::q4_pairs && panel != Panel::q4_1)) return false;
  }
  return true;
}

void run_matrix(const Matmul& op, Lane& lane) {
  _tile_loadconfig(Plan(op, 2).block() == 64 ? &kTilesOf64 : &kTilesOf32);
  Factors factors;
  sweep_many<2, true>(op, lane, own_bytes(op.x.cols), factors, [&](const Plan& plan, int i, int64_t a, int64_t b, const QuantizedTokens& x, int64_t first, int64_t last) {
    with_format(*op.w[i], [&](auto format) {
      using Format = decltype(format);
      if constexpr (Tiled<Format>) tile_panels<Format>(plan, i, a, b, x, factors, first, last, lane.own.data());
    });
  });
  _tile_release();
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
