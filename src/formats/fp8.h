// Eight-bit floats, one a byte:   e4m3  s eeee mmm   (448 at most, no infinity)      e5m2  s eeeee mm   (57344 at most, the top half of an f16)
// As weights they come with scales in a plane of their own (per tensor, per row or per 128x128 block); this header knows the bytes alone.
#pragma once
#include "formats/plain.h"

namespace ridge::plain {

struct Fp8E4m3 { using Bits = uint8_t; static float decode(uint8_t v) { return e4m3_to_f32(v); } static uint8_t encode(float x) { return f32_to_e4m3(x); } };
struct Fp8E5m2 { using Bits = uint8_t; static float decode(uint8_t v) { return e5m2_to_f32(v); } static uint8_t encode(float x) { return f32_to_e5m2(x); } };

}  // namespace ridge::plain
