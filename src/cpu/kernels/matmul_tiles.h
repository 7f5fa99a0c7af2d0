// The register tiles of the matmul: P panels (16 outputs each) by T tokens, over all of K. One lane is one output, so nothing is ever summed across lanes, and
// an output's bits do not depend on the shape of the tile.
//
//   int_tile    per block: exact int32 dot; acc = fma(float(dot), scale_w * scale_x, acc); with mins: acc = fma(min, scale_x * sum of codes, acc);
//               tokens of two planes go over all of K twice, the second time on top of what the first one gave
//   float_tile  per input: acc = fma(weight, x, acc)
//
// Loops over P and T are unrolled by pragma, so that the arrays they index are registers.
#pragma once
#include "cpu/kernels/matmul_formats.h"

namespace ridge::cpu::RIDGE_ISA_NS {

// Bytes between the weights in use and those asked for from memory, in each of the panels that are read side by side: with two of them 4 KB is as good as
// 8 KB (q4_0 24.1 against 23.0 GB/s, q8_0 26.0 against 26.5 on two Emerald Rapids cores), and less is lost where a stream ends.
inline constexpr int64_t kPrefetchAhead = 4096;

// From the start of a panel to what will be wanted kPrefetchAhead later, when P panels that lie behind each other are read side by side: past the panel's end
// that is the same place of the next P, not the neighbour, which is being read now.
template <int P> inline int64_t prefetch_offset(int64_t at, int64_t panel_bytes) {
  const int64_t ahead = at + kPrefetchAhead;
  return P > 1 && ahead >= panel_bytes ? ahead + (P - 1) * panel_bytes : ahead;
}

// Quantized tokens `stride` bytes apart (kernels/matmul_input.h): pointers into the first one.
struct IntInput {
  const int8_t* codes;
  const float* scales;
  const int32_t* begins;                     // per block of the weight's format: kDotBegin - kOffset * sum of codes, where there is an offset
  const float* products;                     // and scale * sum of codes, where the format has mins
  int64_t stride, plane_bytes;               // the next plane of a token begins plane_bytes further
  int n_planes;                              // 1 in the i8 arithmetic, 2 in i16

  [[gnu::always_inline]] IntInput next_plane() const {
    const auto further = [this](auto* p) { return reinterpret_cast<decltype(p)>(reinterpret_cast<const char*>(p) + plane_bytes); };
    return {further(codes), further(scales), further(begins), further(products), stride, plane_bytes, n_planes - 1};
  }
};

template <class T> [[gnu::always_inline]] inline T at_bytes(const T* p, int64_t bytes) { return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(p) + bytes); }

// Inputs 4j .. 4j+3 of 16: one row of weight bytes for each panel, times every token.
template <class Source, int P, int T, int j>
[[gnu::always_inline]] inline void int_tile_step(I (&dot)[P][T], const Bytes (&panels)[P], int64_t at, int g, const Codes (&x)[T]) {
#pragma GCC unroll kUnroll
  for (int p = 0; p < P; ++p) {
    const B w = Source::codes(panels[p] + at, g + j);
#pragma GCC unroll kUnroll
    for (int t = 0; t < T; ++t) dot[p][t] = Source::kSmall ? dot_small_codes<j>(dot[p][t], w, x[t]) : dot_codes<j>(dot[p][t], w, x[t]);
  }
}

template <class Source, int P, int T, bool kStream>
[[gnu::always_inline]] inline void int_tile(F (&acc)[P][T], const Bytes (&panels)[P], int64_t n_superblocks, IntInput x) {
  constexpr int kBlock = Source::kBlock, kBlocks = 64 / kBlock;
#pragma GCC unroll kUnroll
  for (int p = 0; p < P; ++p)
#pragma GCC unroll kUnroll
    for (int t = 0; t < T; ++t) acc[p][t] = zero();
  for (; x.n_planes > 0; x = x.next_plane()) {
    const int8_t* codes = x.codes;
    const float* scales = x.scales;
    const int32_t* begins = x.begins;
    const float* products = x.products;
    const int64_t stride = x.stride;
    const int64_t panel_bytes = n_superblocks * Source::kBytes;
    for (int64_t at = 0; at < panel_bytes; at += Source::kBytes, codes += 64, scales += 2, begins += kBlocks, products += kBlocks) {
      const int64_t ahead = prefetch_offset<P>(at, panel_bytes);
#pragma GCC unroll kUnroll
      for (int b = 0; b < kBlocks; ++b) {
        I dot[P][T], odd[P][T];                 // a dot instruction takes 5 cycles: a tile that is too small to hide that sums every second one apart
        constexpr bool kTwo = P * T <= kSplitSums;
#pragma GCC unroll kUnroll
        for (int t = 0; t < T; ++t) {
          I begin = iset1(kDotBegin);
          if constexpr (Source::kOffset != 0) begin = iset1(at_bytes(begins + b, t * stride));
#pragma GCC unroll kUnroll
          for (int p = 0; p < P; ++p) dot[p][t] = begin, odd[p][t] = izero();
        }
#pragma GCC unroll kUnroll
        for (int c = 0; c < kBlock / 16; ++c) {
          if (c % 2 == 0) {                     // a piece of at most 32 inputs
            constexpr int kPieces = kBlocks > 2 ? kBlocks : 2, kLines = Source::kBytes / 64;
            const int piece = (kBlock / 16 * b + c) * kPieces / 4;
            if constexpr (kStream)
#pragma GCC unroll kUnroll
              for (int p = 0; p < P; ++p)
#pragma GCC unroll kUnroll
                for (int l = kLines * piece / kPieces; l < kLines * (piece + 1) / kPieces; ++l) prefetch(panels[p] + ahead + 64 * l);
            asm volatile("" ::: "memory");      // low and high nibbles of a byte are loaded twice: keeping 512 bytes in registers between the pieces would spill
          }
          Codes xs[T];
#pragma GCC unroll kUnroll
          for (int t = 0; t < T; ++t) xs[t] = load_codes(codes + t * stride + kBlock * b + 16 * c);
          const int g = kBlock / 4 * b + 4 * c;
          int_tile_step<Source, P, T, 0>(dot, panels, at, g, xs);
          int_tile_step<Source, P, T, 1>(kTwo ? odd : dot, panels, at, g, xs);
          int_tile_step<Source, P, T, 2>(dot, panels, at, g, xs);
          int_tile_step<Source, P, T, 3>(kTwo ? odd : dot, panels, at, g, xs);
        }
#pragma GCC unroll kUnroll
        for (int p = 0; p < P; ++p) {
          const F scale = Source::scale(panels[p] + at, b);
#pragma GCC unroll kUnroll
          for (int t = 0; t < T; ++t) {
            const F scale_x = set1(at_bytes(scales + kBlock * b / 32, t * stride));
            acc[p][t] = fma(dot_to_float(kTwo ? iadd(dot[p][t], odd[p][t]) : dot[p][t]), mul(scale, scale_x), acc[p][t]);
            if constexpr (Source::kMin) acc[p][t] = fma(Source::min(panels[p] + at, b), set1(at_bytes(products + b, t * stride)), acc[p][t]);
          }
        }
      }
    }
  }
}

// f32 tokens `stride` floats apart. A last superblock that K does not fill reads from `tail` [T][64], where the missing inputs are zeros.
struct FloatInput {
  const float* x;
  int64_t stride;
  const float* tail;
};

template <class Source, int P, int T, int j>
[[gnu::always_inline]] inline void float_tile_step(F (&acc)[P][T], const Bytes (&superblocks)[P], int k, const Quad (&x)[T]) {
#pragma GCC unroll kUnroll
  for (int p = 0; p < P; ++p) {
    const F w = Source::number(superblocks[p], k + j);
#pragma GCC unroll kUnroll
    for (int t = 0; t < T; ++t) acc[p][t] = fma_quad<j>(w, x[t], acc[p][t]);
  }
}

// decode: for formats of codes, which are made numbers a superblock at a time (Source is PanelF32 then); null where Source reads the panel itself.
using Decode = void (*)(float* out, Bytes superblock);

template <class Source, int P, int T, bool kStream>
[[gnu::always_inline]] inline void float_tile(F (&acc)[P][T], const Bytes (&panels)[P], int64_t n_superblocks, int64_t superblock_bytes, Decode decode, const FloatInput& x) {
  alignas(64) float decoded[P * 1024];
#pragma GCC unroll kUnroll
  for (int p = 0; p < P; ++p)
#pragma GCC unroll kUnroll
    for (int t = 0; t < T; ++t) acc[p][t] = zero();
  for (int64_t i = 0; i < n_superblocks; ++i) {
    const int64_t ahead = prefetch_offset<P>(i * superblock_bytes, n_superblocks * superblock_bytes) - i * superblock_bytes;
    const bool in_tail = x.tail != nullptr && i + 1 == n_superblocks;
    const float* base = in_tail ? x.tail : x.x + 64 * i;
    const int64_t stride = in_tail ? 64 : x.stride;
    Bytes superblocks[P];
    for (int p = 0; p < P; ++p) {
      superblocks[p] = panels[p] + i * superblock_bytes;
      if (!decode) continue;
      decode(decoded + 1024 * p, superblocks[p]);
      superblocks[p] = reinterpret_cast<Bytes>(decoded + 1024 * p);
    }
    for (int k = 0; k < 64; k += 4) {
      if constexpr (kStream)
        if (!decode)
#pragma GCC unroll kUnroll
          for (int p = 0; p < P; ++p)
#pragma GCC unroll kUnroll
            for (int l = 0; l < Source::kNumberBytes; l += 1) prefetch(superblocks[p] + ahead + 16 * Source::kNumberBytes * k + 64 * l);
      Quad xs[T];
#pragma GCC unroll kUnroll
      for (int t = 0; t < T; ++t) xs[t] = load_quad(base + t * stride + k);
      float_tile_step<Source, P, T, 0>(acc, superblocks, k, xs);
      float_tile_step<Source, P, T, 1>(acc, superblocks, k, xs);
      float_tile_step<Source, P, T, 2>(acc, superblocks, k, xs);
      float_tile_step<Source, P, T, 3>(acc, superblocks, k, xs);
    }
  }
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
