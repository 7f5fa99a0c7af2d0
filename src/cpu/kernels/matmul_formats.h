// What the matmul tiles know of a packed format (layouts: cpu/panels.h). s is a superblock of 64 inputs x 16 outputs.
//
//   B codes(s, g)       inputs 4g .. 4g+3 as bytes for the dot: in [0, 127] when kSmall, else through dot_ready(); they stand for the code + kOffset
//   F scale(s, b), min(s, b)      of block b (kBlock inputs)
//   F weight<j>(s, g, scale, min) input 4g + j as the format's decode gives it; formats of plain numbers have number(s, k) instead
#pragma once
#include "cpu/panels.h"
#include "cpu/simd/dot.h"

namespace ridge::cpu::RIDGE_ISA_NS {

using Bytes = const uint8_t*;

inline const uint16_t* halves(Bytes s) { return reinterpret_cast<const uint16_t*>(s); }
inline const float* floats(Bytes s) { return reinterpret_cast<const float*>(s); }

[[gnu::always_inline]] inline B nibbles(Bytes s, int g) {
  const B pair = bload(s + 64 * (g % 8));
  return g < 8 ? band(pair, bset1(15)) : bshr4(pair);
}

struct PanelQ8_0 {
  static constexpr Panel kPanel = Panel::q8_0;
  static constexpr int kBlock = 32, kOffset = kDotOffset;
  static constexpr bool kSmall = false, kMin = false;
  static B codes(Bytes s, int g) { return dot_ready(bload(s + 64 * g)); }
  static F scale(Bytes s, int b) { return load_f16(halves(s + 1024 + 32 * b)); }
  template <int j> static F weight(Bytes s, int g, F scale, F) { return mul(to_float(signed_byte<j>(bload(s + 64 * g))), scale); }
};

struct PanelQ4_0 {
  static constexpr Panel kPanel = Panel::q4_0;
  static constexpr int kBlock = 32, kOffset = 8;
  static constexpr bool kSmall = true, kMin = false;
  static B codes(Bytes s, int g) { return nibbles(s, g); }
  static F scale(Bytes s, int b) { return load_f16(halves(s + 512 + 32 * b)); }
  template <int j> static F weight(Bytes s, int g, F scale, F) { return mul(to_float(isub(unsigned_byte<j>(nibbles(s, g)), iset1(8))), scale); }
};

// Codes are s8 numbers once they are multiplied by their block's small integer, and 64 of them have one scale.
struct PanelQ4Pairs {
  static constexpr Panel kPanel = Panel::q4_pairs;
  static constexpr int kBlock = 64, kOffset = kDotOffset;
  static constexpr bool kSmall = false, kMin = false;
  [[gnu::always_inline]] static B codes(Bytes s, int g) { return multiply_nibbles(nibbles(s, g), load_multiples(reinterpret_cast<const int8_t*>(s) + 512 + 16 * (g / 8))); }
  static F scale(Bytes s, int) { return load_f16(halves(s + 544)); }
  template <int j> static F weight(Bytes s, int g, F scale, F) { return mul(to_float(signed_byte<j>(dot_ready(codes(s, g)))), scale); }
};

struct PanelQ4_1 {
  static constexpr Panel kPanel = Panel::q4_1;
  static constexpr int kBlock = 32, kOffset = 0;
  static constexpr bool kSmall = true, kMin = true;
  static B codes(Bytes s, int g) { return nibbles(s, g); }
  static F scale(Bytes s, int b) { return load_f16(halves(s + 512 + 32 * b)); }
  static F min(Bytes s, int b) { return load_f16(halves(s + 576 + 32 * b)); }
  template <int j> static F weight(Bytes s, int g, F scale, F min) { return add(mul(to_float(unsigned_byte<j>(nibbles(s, g))), scale), min); }
};

struct PanelQ6K {
  static constexpr Panel kPanel = Panel::q6_k;
  static constexpr int kBlock = 16, kOffset = 32;
  static constexpr bool kSmall = true, kMin = false;
  [[gnu::always_inline]] static B codes(Bytes s, int g) {
    const B top = bload(s + 512 + 64 * (g % 4));
    const B high = g < 4 ? bshl<4>(band(top, bset1(0x03))) : g < 8 ? bshl<2>(band(top, bset1(0x0c))) : g < 12 ? band(top, bset1(0x30)) : bshr<2>(band(top, bset1(0xc0)));
    return bor(nibbles(s, g), high);
  }
  static F scale(Bytes s, int b) { return mul(load_f16(halves(s + 832)), cvt_i8(reinterpret_cast<const int8_t*>(s) + 768 + 16 * b)); }
  template <int j> static F weight(Bytes s, int g, F scale, F) { return mul(to_float(isub(unsigned_byte<j>(codes(s, g)), iset1(32))), scale); }
};

// Doubled e2m1 values plus 12 are in [0, 24]; the half is in Weight::scale.
struct PanelNvfp4 {
  static constexpr Panel kPanel = Panel::nvfp4;
  static constexpr int kBlock = 16, kOffset = 12;
  static constexpr bool kSmall = true, kMin = false;
  alignas(16) static constexpr int8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  static B codes(Bytes s, int g) { return lookup16(btable(kTable), nibbles(s, g)); }
  static F scale(Bytes s, int b) { return load_e4m3(s + 512 + 16 * b); }
  template <int j> static F weight(Bytes s, int g, F scale, F) { return mul(to_float(isub(unsigned_byte<j>(codes(s, g)), iset1(12))), scale); }
};

struct PanelWide {
  static constexpr Panel kPanel = Panel::wide;
  static constexpr int kBlock = 16, kOffset = kDotOffset;
  static constexpr bool kSmall = false, kMin = true;
  static B codes(Bytes s, int g) { return dot_ready(bload(s + 64 * g)); }
  static F scale(Bytes s, int b) { return load(floats(s + 1024 + 64 * b)); }
  static F min(Bytes s, int b) { return load(floats(s + 1280 + 64 * b)); }
  template <int j> static F weight(Bytes s, int g, F scale, F min) { return add(mul(to_float(signed_byte<j>(bload(s + 64 * g))), scale), min); }
};

struct PanelBf16 {
  static constexpr Panel kPanel = Panel::bf16;
  static constexpr int kNumberBytes = 2;
  static F number(Bytes s, int k) { return load_bf16(halves(s + 32 * k)); }
};
struct PanelF16 {
  static constexpr Panel kPanel = Panel::f16;
  static constexpr int kNumberBytes = 2;
  static F number(Bytes s, int k) { return load_f16(halves(s + 32 * k)); }
};
struct PanelF32 {
  static constexpr Panel kPanel = Panel::f32;
  static constexpr int kNumberBytes = 4;
  static F number(Bytes s, int k) { return load(floats(s + 64 * k)); }
};

template <class Format> concept Coded = requires { Format::kBlock; };

// Where an int tile reads: the packed panel itself, or one unpacked into scratch: codes [16 g][64] as the dot wants them, then f32 scales and mins [blocks][16].
template <class Format> struct Packed : Format {
  static constexpr int64_t kBytes = superblock_bytes(Format::kPanel);
};
template <class Format> struct Unpacked : Format {
  static constexpr int kBlocks = 64 / Format::kBlock;
  static constexpr int64_t kBytes = 1024 + kBlocks * 64 * (Format::kMin ? 2 : 1);
  static B codes(Bytes s, int g) { return bload(s + 64 * g); }
  static F scale(Bytes s, int b) { return load(floats(s + 1024 + 64 * b)); }
  static F min(Bytes s, int b) { return load(floats(s + 1024 + 64 * (kBlocks + b))); }
};

template <class Format>
void unpack(uint8_t* out, Bytes panel, int64_t n_superblocks) {
  using To = Unpacked<Format>;
  for (int64_t i = 0; i < n_superblocks; ++i, out += To::kBytes, panel += superblock_bytes(Format::kPanel)) {
#pragma GCC unroll kUnroll
    for (int g = 0; g < 16; ++g) bstore(out + 64 * g, Format::codes(panel, g));
#pragma GCC unroll kUnroll
    for (int b = 0; b < To::kBlocks; ++b) {
      store(reinterpret_cast<float*>(out + 1024 + 64 * b), Format::scale(panel, b));
      if constexpr (Format::kMin) store(reinterpret_cast<float*>(out + 1024 + 64 * (To::kBlocks + b)), Format::min(panel, b));
    }
  }
}

// A superblock as numbers [64 k][16 n].
template <class Format>
void decode_superblock(float* out, Bytes s) {
#pragma GCC unroll kUnroll
  for (int b = 0; b < 64 / Format::kBlock; ++b) {
    const F scale = Format::scale(s, b);
    F min = scale;
    if constexpr (Format::kMin) min = Format::min(s, b);
#pragma GCC unroll kUnroll
    for (int i = 0; i < Format::kBlock / 4; ++i) {
      const int g = Format::kBlock / 4 * b + i;
      store(out + 64 * g, Format::template weight<0>(s, g, scale, min));
      store(out + 64 * g + 16, Format::template weight<1>(s, g, scale, min));
      store(out + 64 * g + 32, Format::template weight<2>(s, g, scale, min));
      store(out + 64 * g + 48, Format::template weight<3>(s, g, scale, min));
    }
  }
  for (int64_t at = 0; at < superblock_bytes(Format::kPanel); at += 64) prefetch(s + 8192 + at);
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
