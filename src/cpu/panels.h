// How packed weights lie in memory. A PANEL is 16 outputs; it is a run of SUPERBLOCKS of 64 inputs (K padded with zeros to 64, outputs to 16), each a multiple
// of 64 bytes; panels follow each other, so that a worker reads one sequential stream. Byte (g, n, j) of the codes is input 4g + j of output n: the operand
// of an integer dot instruction, and an AMX tile.
//
//   q8_0    int8 [16 g][16 n][4 j], f16 scales [2 blocks of 32][16 n]                                                       1088 bytes
//   q4_0    u4 [8 g][16 n][4 j]: low nibble g, high nibble g + 8;  f16 scales [2][16]                 x = d (q - 8)         576
//   q4_pairs   u4 as q4_0; int8 m [2][16], f16 s [16] (cpu/q4_pairs.h; the eighth is in Weight::scale) x = s/8 m (q - 8)     576
//   q4_1    as q4_0, then f16 mins [2][16]                                                            x = d q + m           640
//   q6_k    low nibbles as q4_0; bits 4-5 [4 v][16 n][4 j]: bits 2f of byte v belong to g = v + 4f; int8 scales [4 blocks of 16][16 n]; f16 d [16], 32 bytes unused   896
//                                                                                                     x = d scale (q - 32)
//   nvfp4   e2m1 nibbles as q4_0, e4m3 scales [4 blocks of 16][16 n]                                  x = s e2m1(q)         576
//   wide    int8 as q8_0, f32 scales [4 blocks of 16][16 n], f32 mins [4][16]                         x = s q + m           1536
//   f32 f16 bf16    numbers [64 k][16 n]
// `wide` takes what has no kernel of its own (q5_0 q5_1 q2_k q3_k q4_k q5_k mxfp4) without rounding anything.
#pragma once
#include <cstdint>

#include "backend/op.h"

namespace ridge::cpu {

inline constexpr int64_t kPanelRows = 16, kSuperblock = 64;

enum class Panel : uint8_t { q8_0, q4_0, q4_pairs, q4_1, q6_k, nvfp4, wide, bf16, f16, f32 };

// Which layout a Weight of this format has once it is packed.
constexpr Panel panel_of(FormatId id) {
  switch (id) {
    case FormatId::q8_0: return Panel::q8_0;
    case FormatId::q4_0: return Panel::q4_0;
    case FormatId::q4_1: return Panel::q4_1;
    case FormatId::q6_k: return Panel::q6_k;
    case FormatId::nvfp4: return Panel::nvfp4;
    case FormatId::q5_0: case FormatId::q5_1: case FormatId::q2_k: case FormatId::q3_k: case FormatId::q4_k: case FormatId::q5_k: case FormatId::mxfp4: return Panel::wide;
    case FormatId::bf16: return Panel::bf16;
    case FormatId::f16: return Panel::f16;
    default: return Panel::f32;
  }
}
constexpr Panel panel_of(const Weight& w) {
  return w.format == FormatId::q4_0 && w.arithmetic.x == FormatId::i8 && w.arithmetic.k_block == 64 ? Panel::q4_pairs : panel_of(w.format);
}

constexpr int64_t superblock_bytes(Panel p) {
  switch (p) {
    case Panel::q8_0: return 1088;
    case Panel::q4_0: case Panel::q4_pairs: case Panel::nvfp4: return 576;
    case Panel::q4_1: return 640;
    case Panel::q6_k: return 896;
    case Panel::wide: return 1536;
    case Panel::bf16: case Panel::f16: return 2048;
    default: return 4096;
  }
}

constexpr bool has_integer_codes(Panel p) { return p <= Panel::wide; }
constexpr int64_t superblocks_of(int64_t cols) { return (cols + kSuperblock - 1) / kSuperblock; }
constexpr int64_t panels_of(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

// One plane of a token's activations in int8: codes [K] (+ 64 bytes, so that tokens do not share cache sets), f32 scales [K / 32], sums of the codes in up to
// four forms [4][K / 16] (kernels/matmul_input.h); K padded to 64. A token has one plane in the i8 arithmetic, and two behind each other in i16.
constexpr int64_t plane_bytes(int64_t cols) {
  const int64_t k = superblocks_of(cols) * kSuperblock;
  return (k + 64 + k / 32 * 4 + 4 * (k / 16 * 4) + 63) / 64 * 64;
}

}  // namespace ridge::cpu
