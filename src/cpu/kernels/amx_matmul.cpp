// Matmul on AMX int8 tiles, for 16 tokens and more and weights in blocks of 32. One TDPBSSD gives the exact int32 sums of a block for 16 tokens by a panel; they
// go through a buffer to the same float epilogue as everywhere. Tiles and vectors hardly overlap, and on a virtual machine a tile load may cost 3 ns or 13, so
// tiles are loaded as rarely as can be: 128 inputs of a panel (4 blocks) stay in tile registers while the tokens of a group pass by, whose float sums wait in
// scratch. 16 tokens x 64 codes are one A tile for two blocks, because a B tile holds its block in one half of its rows and zeros in the other.
//
//   unpacked panel  signed bytes [superblock][8 rows of block 0 | 8 rows of zeros | 8 rows of block 1][16 outputs][4]: rows 0-15 and 8-23 are the B tiles
//                   then f32 scales [block][16], then mins
//   tmm0 tmm1       sums [tokens][16 outputs], in turn      tmm2 tmm3  A [tokens][64 codes]      tmm4 .. tmm7  B of the four blocks
//
// The sums of 16 tokens are used while the next tokens are multiplied. The tokens' scales lie 16 tokens side by side: a broadcast each, no pointers.
#include <cstring>

#include "cpu/features.h"
#include "cpu/kernels/matmul_plan.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kTokens = 16, kTileNumbers = kTokens * 16;
constexpr int64_t kGroup = 256;              // tokens whose float sums are kept at a time: 16 KB
constexpr int64_t kPaddedBytes = 24 * 64;    // of a superblock's codes

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
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
  const float* scales(int64_t token, int plane) const { return base_ + token / 16 * further() + plane * 2 * 16 * n_blocks(*plan_); }

  // From 16 tokens to the next.
  int64_t further() const { return plan_->n_planes * 2 * 16 * n_blocks(*plan_); }

  static int64_t n_blocks(const Plan& plan) { return 2 * superblocks_of(plan.op.x.cols); }

 private:
  const Plan* plan_ = nullptr;
  float* base_ = nullptr;
  int with_products_ = 0;                    // the kind of sums that are products; 3: none
};

struct UnpackedPanel {
  uint8_t* codes;
  float *scales, *mins;

  UnpackedPanel(std::byte* memory, int64_t n_superblocks)
      : codes(reinterpret_cast<uint8_t*>(memory)), scales(reinterpret_cast<float*>(codes + n_superblocks * kPaddedBytes)), mins(scales + 32 * n_superblocks) {}
  static int64_t bytes(int64_t n_superblocks) { return n_superblocks * (kPaddedBytes + 2 * 2 * 64); }
};

template <class Format>
void unpack_padded(const UnpackedPanel& to, Bytes panel, int64_t n_superblocks) {
  const B offset = bset1(static_cast<uint8_t>(Format::kOffset)), nothing = bset1(0);
  uint8_t* out = to.codes;
  for (int64_t i = 0; i < n_superblocks; ++i, out += kPaddedBytes, panel += superblock_bytes(Format::kPanel)) {
#pragma GCC unroll kUnroll
    for (int g = 0; g < 8; ++g) {
      bstore(out + 64 * g, bsub(Format::codes(panel, g), offset));                             // modulo 256: w + 128 - 128 too
      bstore(out + 64 * (8 + g), nothing);
      bstore(out + 64 * (16 + g), bsub(Format::codes(panel, 8 + g), offset));
    }
#pragma GCC unroll kUnroll
    for (int b = 0; b < 2; ++b) {
      store(to.scales + 16 * (2 * i + b), Format::scale(panel, b));
      if constexpr (Format::kMin) store(to.mins + 16 * (2 * i + b), Format::min(panel, b));
    }
  }
}

// N blocks of a panel (2 or 4) for a run of tokens, added to their float sums.
template <class Format, int N>
class Blocks {
 public:
  Blocks(const UnpackedPanel& panel, int64_t block) {
    const uint8_t* codes = panel.codes + block / 2 * kPaddedBytes;
    _tile_loadd(4, codes, 64);
    _tile_loadd(5, codes + 512, 64);
    if constexpr (N == 4) {
      _tile_loadd(6, codes + kPaddedBytes, 64);
      _tile_loadd(7, codes + kPaddedBytes + 512, 64);
    }
#pragma GCC unroll kUnroll
    for (int b = 0; b < N; ++b) {
      scale_[b] = load(panel.scales + 16 * (block + b));
      if constexpr (Format::kMin) min_[b] = load(panel.mins + 16 * (block + b));
    }
  }

  // codes: of the first token at the first block; scales, products: of the first 16 tokens at the first block, 16 tokens further every `further` floats.
  void run(float* out, int64_t n_tiles, const int8_t* codes, int64_t stride, const float* scales, const float* products, int64_t further) {
    alignas(64) int32_t sums[2][N * kTileNumbers];
    for (int64_t i = 0; i < n_tiles; ++i, codes += kTokens * stride) {
      int32_t *now = sums[i % 2], *before = sums[(i + 1) % 2];
      _tile_loadd(2, codes, stride);
      _tile_zero(0);
      _tile_dpbssd(0, 2, 4);
      if (i > 0) _tile_stored(1, before + (N - 1) * kTileNumbers, 64);
      _tile_zero(1);
      _tile_dpbssd(1, 2, 5);
      _tile_stored(0, now, 64);
      if constexpr (N == 4) {
        _tile_loadd(3, codes + 64, stride);
        _tile_zero(0);
        _tile_dpbssd(0, 3, 6);
        _tile_stored(1, now + kTileNumbers, 64);
        _tile_zero(1);
        _tile_dpbssd(1, 3, 7);
        _tile_stored(0, now + 2 * kTileNumbers, 64);
      }
      if (i == 0) continue;
      add(out, before, scales, products);
      out += kTileNumbers, scales += further, products += further;
    }
    int32_t* last = sums[(n_tiles + 1) % 2];
    _tile_stored(1, last + (N - 1) * kTileNumbers, 64);
    add(out, last, scales, products);
  }

 private:
  [[gnu::always_inline]] void add(float* out, const int32_t* sums, const float* scales, const float* products) const {
    for (int half = 0; half < kTokens; half += 8, out += 128, sums += 128, scales += 8, products += 8) {
      F acc[8];
#pragma GCC unroll kUnroll
      for (int t = 0; t < 8; ++t) acc[t] = load(out + 16 * t);
#pragma GCC unroll kUnroll
      for (int b = 0; b < N; ++b)
#pragma GCC unroll kUnroll
        for (int t = 0; t < 8; ++t) {
          acc[t] = fma(to_float(iload(sums + b * kTileNumbers + 16 * t)), mul(scale_[b], set1(scales[16 * b + t])), acc[t]);
          if constexpr (Format::kMin) acc[t] = fma(min_[b], set1(products[16 * b + t]), acc[t]);
        }
#pragma GCC unroll kUnroll
      for (int t = 0; t < 8; ++t) store(out + 16 * t, acc[t]);
    }
  }

  F scale_[N], min_[N];
};

template <class Format, int N>
[[gnu::noinline]] void add_blocks(float* out, int64_t n_tiles, const UnpackedPanel& panel, int64_t block, const int8_t* codes, int64_t stride, const float* scales,
                                  const float* products, int64_t further) {
  Blocks<Format, N>(panel, block).run(out, n_tiles, codes, stride, scales, products, further);
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

int64_t own_bytes(int64_t cols) { return UnpackedPanel::bytes(superblocks_of(cols)) + kGroup * 16 * 4; }

// Panels [first, last) of weight i; x and factors hold tokens [token_first, token_last). The last tile may reach past them: what it finds there is not used.
template <class Format>
void tile_panels(const Plan& plan, int i, int64_t first, int64_t last, const QuantizedTokens& x, const Factors& factors, int64_t token_first, int64_t token_last,
                 std::byte* own) {
  const Matmul& op = plan.op;
  const int64_t n_superblocks = superblocks_of(op.x.cols), n_blocks = 2 * n_superblocks, panel_bytes = n_superblocks * superblock_bytes(Format::kPanel);
  const UnpackedPanel unpacked(own, n_superblocks);
  auto* sums = reinterpret_cast<float*>(own + UnpackedPanel::bytes(n_superblocks));
  const int64_t n_tokens = token_last - token_first;
  const int n_planes = planes_of(*op.w[i]);
  for (int64_t panel = first; panel < last; ++panel) {
    const Bytes packed = reinterpret_cast<Bytes>(op.w[i]->packed.data) + panel * panel_bytes;
    unpack_padded<Format>(unpacked, packed, n_superblocks);
    for (int64_t group = 0; group < n_tokens; group += kGroup) {
      const int64_t end = group + kGroup < n_tokens ? group + kGroup : n_tokens, n_tiles = (end - group + kTokens - 1) / kTokens;
      for (int64_t j = 0; j < n_tiles * kTileNumbers; j += 16) store(sums + j, zero());
      const IntInput in = x.input(group, 0, false, n_planes);
      for (int plane = 0; plane < n_planes; ++plane) {
        const int8_t* codes = in.codes + plane * in.plane_bytes;
        const float* scales = factors.scales(group, plane);
        for (int64_t b = 0; b < n_blocks; b += 4) {
          if (group == 0 && plane == 0)                             // the same part of the next panel, which this worker will probably get
            for (int64_t at = 0; at < 2 * superblock_bytes(Format::kPanel); at += 64) prefetch(packed + panel_bytes + b / 2 * superblock_bytes(Format::kPanel) + at);
          (b + 4 <= n_blocks ? add_blocks<Format, 4> : add_blocks<Format, 2>)(sums, n_tiles, unpacked, b, codes + 32 * b, in.stride, scales + 16 * b,
                                                                              scales + 16 * (n_blocks + b), factors.further());
        }
      }
      for (int64_t tile = 0; tile < n_tiles; ++tile)
        finish_tile(sums + tile * kTileNumbers, op, i, panel, token_first + group + tile * kTokens, end - group - tile * kTokens);
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
  sweep_many<1>(op, lane, own_bytes(op.x.cols), factors, [&](const Plan& plan, int i, int64_t a, int64_t b, const QuantizedTokens& x, int64_t first, int64_t last) {
    with_format(*op.w[i], [&](auto format) {
      using Format = decltype(format);
      if constexpr (Tiled<Format>) tile_panels<Format>(plan, i, a, b, x, factors, first, last, lane.own.data());
    });
  });
  _tile_release();
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
