// Packing: each stored format has a function that writes one row (output) of one superblock; all panels are independent, so the whole team packs.
#include "cpu/pack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "cpu/mxfp4_as_nvfp4.h"
#include "cpu/panels.h"
#include "cpu/q4_pairs.h"
#include "cpu/team.h"
#include "formats/k_scales.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "formats/q2_k.h"
#include "formats/q3_k.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q4_k.h"
#include "formats/q5_0.h"
#include "formats/q5_1.h"
#include "formats/q5_k.h"
#include "formats/q6_k.h"
#include "formats/q8_0.h"

namespace ridge::cpu {
namespace {

constexpr uint32_t kLow = 0x0f0f0f0f;

uint32_t word(const void* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

// Writes row n of one superblock: inputs [64 s, 64 s + 64), as many as the stored row has. What is not written is zero already: allocate() says so.
// `out` is the superblock; word (g, n) of its codes is at 4 (16 g + n).
struct Slot {
  uint8_t* out;
  int n;
  void put(int g, uint32_t w) const { std::memcpy(out + 4 * (16 * g + n), &w, 4); }
  void or_byte(int at, int g, int j, uint8_t bits) const { out[at + 4 * (16 * g + n) + j] |= bits; }
  template <class T> void number(int at, int i, T v) const { std::memcpy(out + at + (16 * i + n) * static_cast<int>(sizeof v), &v, sizeof v); }
};

// The blocks of 32 that a superblock of this row holds: 2, or 1 at the end of a row whose length is no multiple of 64.
template <class Block>
const Block* blocks_at(const StoredWeight& w, int64_t r, int64_t s) { return w.codes.row_as<const Block>(r) + s * 64 / Block::kElems; }
int blocks32(const StoredWeight& w, int64_t s) { return w.cols - 64 * s >= 64 ? 2 : 1; }

void pack_q8_0(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const auto* b = blocks_at<BlockQ8_0>(w, r, s);
  for (int i = 0; i < blocks32(w, s); ++i) {
    for (int g = 0; g < 8; ++g) slot.put(8 * i + g, word(b[i].q + 4 * g));
    slot.number<uint16_t>(1024, i, b[i].d);
  }
}

// Two blocks whose byte j holds q[j] and q[j + 16]: the first goes to the low nibbles, the second to the high ones.
void pack_nibbles(Slot slot, const uint8_t* first, const uint8_t* second) {
  for (int g = 0; g < 4; ++g) {
    const uint32_t a = word(first + 4 * g), b = second ? word(second + 4 * g) : 0;
    slot.put(g, (a & kLow) | (b & kLow) << 4);
    slot.put(g + 4, (a >> 4 & kLow) | (b & ~kLow));
  }
}

void pack_q4_0(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const auto* b = blocks_at<BlockQ4_0>(w, r, s);
  const int n = blocks32(w, s);
  pack_nibbles(slot, b[0].q, n > 1 ? b[1].q : nullptr);
  for (int i = 0; i < n; ++i) slot.number<uint16_t>(512, i, b[i].d);
}

void pack_q4_pairs(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const auto* b = blocks_at<BlockQ4_0>(w, r, s);
  const bool both = blocks32(w, s) > 1;
  pack_nibbles(slot, b[0].q, both ? b[1].q : nullptr);
  const ScalePair pair = pair_scales(f16_to_f32(b[0].d), both ? f16_to_f32(b[1].d) : 0.0f);
  for (int i = 0; i < 2; ++i) slot.number<int8_t>(512, i, pair.m[i]);
  slot.number<uint16_t>(544, 0, pair.eight_s);
}

void pack_q4_1(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const auto* b = blocks_at<BlockQ4_1>(w, r, s);
  const int n = blocks32(w, s);
  pack_nibbles(slot, b[0].q, n > 1 ? b[1].q : nullptr);
  for (int i = 0; i < n; ++i) {
    slot.number<uint16_t>(512, i, b[i].d);
    slot.number<uint16_t>(576, i, b[i].m);
  }
}

void pack_q6_k(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const auto& b = w.codes.row_as<const BlockQ6K>(r)[s / 4];
  const int half = static_cast<int>(s % 4) / 2, part = static_cast<int>(s % 2);       // inputs 128 half + 64 part ...
  uint32_t high[4] = {};
  for (int g = 0; g < 8; ++g) {
    const uint32_t low = word(b.low + 64 * half + 4 * g), next = word(b.low + 64 * half + 32 + 4 * g), top = word(b.high + 32 * half + 4 * g);
    slot.put(g, (low >> (4 * part) & kLow) | (next >> (4 * part) & kLow) << 4);
    // Group g of this superblock is in bits 4 part and group g + 8 in bits 4 part + 2 of the stored byte; here they are in bits 2 (g / 4) of word g % 4.
    high[g % 4] |= (top >> (4 * part) & 0x03030303) << (2 * (g / 4)) | (top >> (4 * part + 2) & 0x03030303) << (2 * (g / 4) + 4);
  }
  for (int v = 0; v < 4; ++v) std::memcpy(slot.out + 512 + 4 * (16 * v + slot.n), &high[v], 4);
  for (int i = 0; i < 4; ++i) slot.number<int8_t>(768, i, b.scales[8 * half + 4 * part + i]);
  slot.number<uint16_t>(832, 0, b.d);
}

void pack_nvfp4_gguf(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const auto& b = w.codes.row_as<const BlockNvfp4>(r)[s];
  for (int group = 0; group < 2; ++group)                                              // 16 inputs: with group + 2 in the high nibbles
    for (int i = 0; i < 2; ++i) {
      const uint32_t first = word(b.q + 8 * group + 4 * i), second = word(b.q + 8 * (group + 2) + 4 * i);
      slot.put(4 * group + i, (first & kLow) | (second & kLow) << 4);
      slot.put(4 * group + i + 2, (first >> 4 & kLow) | (second & ~kLow));
    }
  for (int i = 0; i < 4; ++i) slot.number<uint8_t>(512, i, (b.scale[i] & 0x7f) == 0x7f ? 0 : b.scale[i] & 0x7f);
}

// Planes: byte i of a row holds inputs 2i (low) and 2i + 1.
void pack_nvfp4_planes(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const auto* q = w.codes.row_as<const uint8_t>(r) + 32 * s;
  const auto* scales = w.scales.row_as<const uint8_t>(r) + 4 * s;
  const int n = static_cast<int>(std::min<int64_t>(64, w.cols - 64 * s));
  for (int k = 0; k < n; ++k) slot.or_byte(0, k / 4 % 8, k % 4, static_cast<uint8_t>((q[k / 2] >> (k % 2 * 4) & 15) << (k / 32 * 4)));
  for (int i = 0; i < n / 16; ++i) slot.number<uint8_t>(512, i, (scales[i] & 0x7f) == 0x7f ? 0 : scales[i]);
}

// Codes, scale and min of blocks of 16 for the wide panels: value = code * scale + min, rounded as the format's decode rounds.
struct WideBlock { int8_t q[16]; float scale = 0, min = 0; };

void wide(WideBlock& o, const BlockQ5_0& b, int i) {
  for (int k = 0; k < 16; ++k) o.q[k] = static_cast<int8_t>(((b.low[k] >> (4 * i) & 15) | (b.high[(16 * i + k) / 8] >> (k % 8) & 1) << 4) - 16);
  o.scale = f16_to_f32(b.d);
}
void wide(WideBlock& o, const BlockQ5_1& b, int i) {
  for (int k = 0; k < 16; ++k) o.q[k] = static_cast<int8_t>((b.low[k] >> (4 * i) & 15) | (b.high[(16 * i + k) / 8] >> (k % 8) & 1) << 4);
  o.scale = f16_to_f32(b.d), o.min = f16_to_f32(b.m);
}
void wide(WideBlock& o, const BlockMxfp4& b, int i) {
  for (int k = 0; k < 16; ++k) o.q[k] = kE2m1Doubled[b.q[k] >> (4 * i) & 15];
  o.scale = e8m0_half(b.e);
}
void wide(WideBlock& o, const BlockQ4K& b, int i) {
  const KScale s = unpack_k_scale(b.scales, i / 2);
  for (int k = 0; k < 16; ++k) o.q[k] = static_cast<int8_t>(b.q[i / 4 * 32 + i % 2 * 16 + k] >> (i / 2 % 2 * 4) & 15);
  o.scale = f16_to_f32(b.d) * static_cast<float>(s.scale), o.min = -(f16_to_f32(b.dmin) * static_cast<float>(s.min));
}
void wide(WideBlock& o, const BlockQ5K& b, int i) {
  const KScale s = unpack_k_scale(b.scales, i / 2);
  for (int k = 0; k < 16; ++k) {
    const int l = i % 2 * 16 + k;
    o.q[k] = static_cast<int8_t>((b.low[i / 4 * 32 + l] >> (i / 2 % 2 * 4) & 15) | (b.high[l] >> (i / 2) & 1) << 4);
  }
  o.scale = f16_to_f32(b.d) * static_cast<float>(s.scale), o.min = -(f16_to_f32(b.dmin) * static_cast<float>(s.min));
}
void wide(WideBlock& o, const BlockQ2K& b, int i) {
  for (int k = 0; k < 16; ++k) o.q[k] = static_cast<int8_t>(b.q[i / 8 * 32 + i % 2 * 16 + k] >> (i % 8 / 2 * 2) & 3);
  o.scale = f16_to_f32(b.d) * static_cast<float>(b.scales[i] & 15), o.min = -(f16_to_f32(b.dmin) * static_cast<float>(b.scales[i] >> 4));
}
void wide(WideBlock& o, const BlockQ3K& b, int i) {
  for (int k = 0; k < 16; ++k) {
    const int l = i % 2 * 16 + k;
    o.q[k] = static_cast<int8_t>(((b.q[i / 8 * 32 + l] >> (i % 8 / 2 * 2) & 3) | (b.high[l] >> (i / 2) & 1) << 2) - 4);
  }
  o.scale = f16_to_f32(b.d) * static_cast<float>(q3_k_scale(b, i));
}

template <class Block>
void pack_wide(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  for (int i = 0; i < 4 && 64 * s + 16 * i < w.cols; ++i) {
    const int64_t k = 64 * s + 16 * i;
    WideBlock block;
    wide(block, w.codes.row_as<const Block>(r)[k / Block::kElems], static_cast<int>(k % Block::kElems / 16));
    for (int g = 0; g < 4; ++g) slot.put(4 * i + g, word(block.q + 4 * g));
    slot.number<float>(1024, i, block.scale);
    slot.number<float>(1280, i, block.min);
  }
}

// Plain numbers [64 k][16 n]; codes [rows, cols], or [cols, rows] when transposed.
template <class T>
void pack_numbers(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const int64_t first = 64 * s, n = std::min<int64_t>(64, w.cols - first);
  constexpr int64_t kBytes = sizeof(T);
  T* out = reinterpret_cast<T*>(slot.out) + slot.n;
  if (w.transposed) {
    for (int64_t k = 0; k < n; ++k) std::memcpy(out + 16 * k, w.codes.row(first + k) + r * kBytes, kBytes);
    return;
  }
  const std::byte* x = w.codes.row(r) + first * kBytes;
  for (int64_t k = 0; k < n; ++k) std::memcpy(out + 16 * k, x + k * kBytes, kBytes);
}

// 16-bit numbers two rows at a time, which halves the stores.
void pack_halves(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const bool pair = r % 2 == 0 ? r + 1 < w.rows : true;
  if (w.transposed || !pair) return pack_numbers<uint16_t>(slot, w, r, s);
  if (r % 2 != 0) return;                                                     // came with the row before
  const int64_t first = 64 * s, n = std::min<int64_t>(64, w.cols - first);
  const std::byte *a = w.codes.row(r) + 2 * first, *b = w.codes.row(r + 1) + 2 * first;
  uint8_t* out = slot.out + 2 * slot.n;
  for (int64_t k = 0; k < n; ++k) {
    uint16_t low, high;
    std::memcpy(&low, a + 2 * k, 2);
    std::memcpy(&high, b + 2 * k, 2);
    const uint32_t both = low | static_cast<uint32_t>(high) << 16;
    std::memcpy(out + 32 * k, &both, 4);
  }
}

// Published mxfp4 planes for the wide panels.
void pack_mxfp4_planes(Slot slot, const StoredWeight& w, int64_t r, int64_t s) {
  const auto* q = w.codes.row_as<const uint8_t>(r) + 32 * s;
  const auto* scales = w.scales.row_as<const uint8_t>(r) + 2 * s;
  for (int i = 0; i < 4 && 64 * s + 16 * i < w.cols; ++i) {
    int8_t codes[16];
    for (int k = 0; k < 16; ++k) codes[k] = kE2m1Doubled[q[8 * i + k / 2] >> (k % 2 * 4) & 15];
    for (int g = 0; g < 4; ++g) slot.put(4 * i + g, word(codes + 4 * g));
    slot.number<float>(1024, i, e8m0_half(scales[i / 2]));
  }
}

using PackRow = void (*)(Slot, const StoredWeight&, int64_t r, int64_t s);

// How a stored format is packed; null: by decoding its rows to f32.
PackRow packer_of(const StoredWeight& w) {
  switch (w.format) {
    case FormatId::q8_0: return pack_q8_0;
    case FormatId::q4_0: return pack_q4_0;
    case FormatId::q4_1: return pack_q4_1;
    case FormatId::q6_k: return pack_q6_k;
    case FormatId::nvfp4: return w.codes.format == FormatId::nvfp4 ? pack_nvfp4_gguf : pack_nvfp4_planes;
    case FormatId::q5_0: return pack_wide<BlockQ5_0>;
    case FormatId::q5_1: return pack_wide<BlockQ5_1>;
    case FormatId::mxfp4: return w.codes.format == FormatId::mxfp4 ? pack_wide<BlockMxfp4> : pack_mxfp4_planes;
    case FormatId::q2_k: return pack_wide<BlockQ2K>;
    case FormatId::q3_k: return pack_wide<BlockQ3K>;
    case FormatId::q4_k: return pack_wide<BlockQ4K>;
    case FormatId::q5_k: return pack_wide<BlockQ5K>;
    case FormatId::bf16: case FormatId::f16: return pack_halves;
    case FormatId::f32: return pack_numbers<float>;
    default: return nullptr;
  }
}

}  // namespace

Weight pack_weight(const StoredWeight& stored, Arithmetic arithmetic, const std::function<std::byte*(int64_t)>& allocate, Team& team) {
  if (stored.format == FormatId::mxfp4)
    if (const auto same = mxfp4_as_nvfp4(stored)) return pack_weight(same->weight, arithmetic, allocate, team);
  const bool planes = stored.scales || stored.zeros || stored.index;
  PackRow pack_row = planes && stored.format != FormatId::nvfp4 && stored.format != FormatId::mxfp4 ? nullptr : packer_of(stored);
  if (!pack_row && (stored.format == FormatId::unknown || !format(stored.format).readable))
    fail("{}: the CPU backend cannot multiply by weights in format {}; convert the model to one of f32, f16, bf16, q8_0, q4_0, q4_1, q6_k, nvfp4", stored.name,
         format(stored.format).name);
  CHECK(stored.rows > 0 && stored.cols > 0);
  const int block = stored.format == FormatId::nvfp4 ? (stored.codes.format == FormatId::nvfp4 ? 64 : 16) : format(stored.format).block_elems;
  if (stored.cols % block != 0) fail("{}: {} inputs are no multiple of {}, the block of {}", stored.name, stored.cols, block, format(stored.format).name);

  // fp8 with scales is multiplied as bf16, as its publishers convert it; anything else that has no panels of its own as f32.
  const bool is_fp8 = stored.format == FormatId::fp8_e4m3 || stored.format == FormatId::fp8_e5m2;
  const FormatId kept = pack_row ? stored.format : is_fp8 ? FormatId::bf16 : FormatId::f32;
  if (arithmetic.k_block != 64 || arithmetic.x != FormatId::i8 || kept != FormatId::q4_0 || !pairs_suit(stored, team)) arithmetic.k_block = 32;
  Weight w{.format = kept, .arithmetic = arithmetic, .rows = stored.rows, .cols = stored.cols, .name = stored.name};
  const Panel panel = panel_of(w);
  const int64_t n_superblocks = superblocks_of(stored.cols), n_panels = panels_of(stored.rows), bytes = superblock_bytes(panel), panel_bytes = n_superblocks * bytes;
  if (!has_integer_codes(panel)) w.arithmetic = {};                       // plain numbers are multiplied in f32 whatever is asked for
  if (pack_row) w.scale = kept == FormatId::nvfp4 ? 0.5f * stored.scale : stored.scale;      // nvfp4 panels are read as doubled e2m1 values
  if (panel == Panel::q4_pairs) pack_row = pack_q4_pairs, w.scale /= 8;
  w.bytes = n_panels * panel_bytes;
  w.packed = {allocate(w.bytes), kept, n_panels, panel_bytes, panel_bytes};

  const int64_t chunk = std::max<int64_t>(1, (int64_t{1} << 18) / panel_bytes);
  team.parallel(n_panels, chunk, [&](int64_t first, int64_t last) {
    std::vector<float> row(pack_row ? 0 : static_cast<size_t>(stored.cols));
    for (int64_t p = first; p < last; ++p) {
      auto* out = reinterpret_cast<uint8_t*>(w.packed.row(p));
      const int n_rows = static_cast<int>(std::min<int64_t>(kPanelRows, stored.rows - p * kPanelRows));
      if (!pack_row) {
        for (int n = 0; n < n_rows; ++n) {
          decode_stored_row(row.data(), stored, p * kPanelRows + n);
          for (int64_t k = 0; k < stored.cols; ++k) {
            if (is_fp8) reinterpret_cast<uint16_t*>(out)[16 * k + n] = f32_to_bf16(row[static_cast<size_t>(k)]);
            else reinterpret_cast<float*>(out)[16 * k + n] = row[static_cast<size_t>(k)];
          }
        }
        continue;
      }
      for (int64_t s = 0; s < n_superblocks; ++s)
        for (int n = 0; n < n_rows; ++n) pack_row({out + s * bytes, n}, stored, p * kPanelRows + n, s);
    }
  });
  return w;
}

}  // namespace ridge::cpu
