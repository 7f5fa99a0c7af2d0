// Hand-made blocks whose numbers follow from the layout alone: one code set, one scale set, everything else zero.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "formats/format.h"
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

namespace ridge {
namespace {

template <class Block>
std::vector<float> decoded(const Block& b) {
  std::vector<float> x(Block::kElems);
  decode(x.data(), b);
  return x;
}

const uint16_t kHalf = f32_to_f16(0.5f), kTwo = f32_to_f16(2.0f);

TEST(Decode, Q8_0MultipliesBytesByTheScale) {
  BlockQ8_0 b{.d = kHalf};
  b.q[0] = -128, b.q[31] = 127;
  const auto x = decoded(b);
  EXPECT_EQ(x[0], -64.0f);
  EXPECT_EQ(x[1], 0.0f);
  EXPECT_EQ(x[31], 63.5f);
}

TEST(Decode, Q4_0KeepsTheSecondHalfOfABlockInHighNibbles) {
  BlockQ4_0 b{.d = kTwo};
  for (auto& q : b.q) q = 0x88;
  b.q[3] = 0xf1;
  const auto x = decoded(b);
  EXPECT_EQ(x[3], -14.0f);
  EXPECT_EQ(x[19], 14.0f);
  EXPECT_EQ(x[4], 0.0f);
}

TEST(Decode, Q4_1AddsTheMinimum) {
  BlockQ4_1 b{.d = kTwo, .m = kHalf};
  b.q[15] = 0x3f;
  const auto x = decoded(b);
  EXPECT_EQ(x[15], 30.5f);
  EXPECT_EQ(x[31], 6.5f);
  EXPECT_EQ(x[0], 0.5f);
}

TEST(Decode, Q5TakesItsFifthBitsFromAnOrderedMask) {
  BlockQ5_0 b{.d = kTwo};
  b.high[0] = 0x02, b.high[3] = 0x80, b.low[1] = 0x01, b.low[15] = 0x20;
  const auto x = decoded(b);
  EXPECT_EQ(x[1], 2.0f * (17 - 16));
  EXPECT_EQ(x[31], 2.0f * (18 - 16));
  EXPECT_EQ(x[0], -32.0f);
  BlockQ5_1 c{.d = kTwo, .m = kHalf};
  c.high[2] = 0x01, c.low[0] = 0x30;
  EXPECT_EQ(decoded(c)[16], 2.0f * 19 + 0.5f);
  EXPECT_EQ(decoded(c)[0], 0.5f);
}

TEST(Decode, Q2KPlacesFourCodesABytePerHalf) {
  BlockQ2K b{.d = kTwo, .dmin = kHalf};
  b.scales[128 / 16 + 6] = 0x43;          // group 14: scale 3, min 4; numbers 224 to 239
  b.q[32 + 5] = 0x80;                     // half 1, byte 5: code 2 in the bits of number 128 + 96 + 5
  const auto x = decoded(b);
  EXPECT_EQ(x[229], 2.0f * 3 * 2 - 0.5f * 4);
  EXPECT_EQ(x[224], -2.0f);
  EXPECT_EQ(x[0], 0.0f);
}

TEST(Decode, Q3KSubtractsFourWhereTheHighBitIsClear) {
  BlockQ3K b{.d = kTwo};
  for (auto& s : b.scales) s = 0;
  b.scales[1] = 0x50, b.scales[8 + 1] = 0x20;         // group 9: low bits 5 in the high nibble of byte 1, high bits 2 at bit 4 of byte 9: scale 37 - 32
  b.q[32 + 20] = 0x03, b.high[20] = 1 << 4;           // number 128 + 20: code 3 + 4 - 4
  const auto x = decoded(b);
  EXPECT_EQ(x[148], 2.0f * 5 * 3);
  EXPECT_EQ(x[149], 2.0f * 5 * -4);
  EXPECT_EQ(x[0], 2.0f * -32 * -4);
}

TEST(Decode, SixBitScalesOfQ4KAndQ5KUnpackToWhatWasPacked) {
  uint8_t packed[12] = {};
  for (int j = 0; j < 8; ++j) pack_k_scale(packed, j, {static_cast<uint8_t>(63 - 7 * j), static_cast<uint8_t>(9 * j)});
  for (int j = 0; j < 8; ++j) {
    EXPECT_EQ(unpack_k_scale(packed, j).scale, 63 - 7 * j);
    EXPECT_EQ(unpack_k_scale(packed, j).min, 9 * j);
  }
  // llama.cpp's layout, spelled out for group 5: low bits in byte 9, high bits in the top of bytes 1 and 5.
  const uint8_t one[12] = {0, 0x80, 0, 0, 0, 0x40, 0, 0, 0, 0xa3, 0, 0};
  EXPECT_EQ(unpack_k_scale(one, 5).scale, 0x23);
  EXPECT_EQ(unpack_k_scale(one, 5).min, 0x1a);
}

TEST(Decode, Q4KAndQ5KKeepGroupPairsInNibbles) {
  BlockQ4K b{.d = kTwo, .dmin = kHalf};
  pack_k_scale(b.scales, 3, {5, 2});
  b.q[32 + 7] = 0x90;                                  // part 1, byte 7, high nibble: number 64 + 32 + 7 of group 3
  EXPECT_EQ(decoded(b)[103], 2.0f * 5 * 9 - 0.5f * 2);
  EXPECT_EQ(decoded(b)[96], -1.0f);
  EXPECT_EQ(decoded(b)[71], 0.0f);
  BlockQ5K c{.d = kTwo, .dmin = kHalf};
  pack_k_scale(c.scales, 6, {1, 1});
  c.low[96 + 31] = 0x04, c.high[31] = 1 << 6;
  EXPECT_EQ(decoded(c)[192 + 31], 2.0f * 20 - 0.5f);
}

TEST(Decode, Q6KPutsFourQuartersOfAHalfIntoItsBits) {
  BlockQ6K b{.d = kTwo};
  b.scales[8 + 6] = -3;                                // numbers 128 + 96 to 128 + 111
  b.low[64 + 32 + 4] = 0xb0, b.high[32 + 4] = 0x80;    // number 128 + 96 + 4: low bits 11, high bits 2
  const auto x = decoded(b);
  EXPECT_EQ(x[228], 2.0f * -3 * (11 + 32 - 32));
  EXPECT_EQ(x[229], 2.0f * -3 * -32);
}

TEST(Decode, Mxfp4MultipliesByAPowerOfTwo) {
  BlockMxfp4 b{.e = 129};
  b.q[0] = 0x71, b.q[15] = 0xc9;
  const auto x = decoded(b);
  EXPECT_EQ(x[0], 4 * 0.5f);
  EXPECT_EQ(x[16], 4 * 6.0f);
  EXPECT_EQ(x[15], 4 * -0.5f);
  EXPECT_EQ(x[31], 4 * -2.0f);
  b.e = 0;
  EXPECT_EQ(decoded(b)[16], std::ldexp(6.0f, -127));
}

TEST(Decode, Nvfp4GroupsHaveTheirOwnScalesAndKeepTheirSecondHalfInHighNibbles) {
  BlockNvfp4 b{};
  b.scale[0] = 0x38, b.scale[1] = 0x40, b.scale[3] = 0x01;        // 1, 2, 0, 2^-9
  b.q[2] = 0xf3;                                                  // group 0: numbers 2 and 10
  b.q[8] = 0x07, b.q[31] = 0x20;                                  // group 1: number 16; group 3: number 63
  const auto x = decoded(b);
  EXPECT_EQ(x[2], 1.5f);
  EXPECT_EQ(x[10], -6.0f);
  EXPECT_EQ(x[16], 12.0f);
  EXPECT_EQ(x[63], 1.0f / 512);
  b.scale[0] = 0x7f;
  EXPECT_EQ(decoded(b)[10], 0.0f);
}

TEST(Formats, TheRegistryKnowsEveryFormatByNameAndSize) {
  for (const Format& f : all_formats()) {
    EXPECT_EQ(&format(f.id), &f);
    if (f.id == FormatId::unknown) continue;
    EXPECT_EQ(find_format(f.name), f.id);
    EXPECT_TRUE(f.readable);
    EXPECT_EQ(row_bytes(f.id, f.block_elems * 3), f.block_bytes * 3);
    EXPECT_EQ(f.writable, f.encode_row != nullptr);
  }
  EXPECT_EQ(find_format("Q4_K"), FormatId::q4_k);
  EXPECT_FALSE(find_format("q9_9"));
  EXPECT_FALSE(find_format("unknown"));
}

TEST(Formats, PlainTypesDecodeToTheirNumbers) {
  const int16_t shorts[2] = {-300, 7};
  const double doubles[2] = {0.1, -1e300};
  float x[2];
  format(FormatId::i16).decode_row(x, reinterpret_cast<const std::byte*>(shorts), 2);
  EXPECT_EQ(x[0], -300.0f);
  format(FormatId::f64).decode_row(x, reinterpret_cast<const std::byte*>(doubles), 2);
  EXPECT_EQ(x[0], 0.1f);
  EXPECT_EQ(x[1], -INFINITY);
}

}  // namespace
}  // namespace ridge
