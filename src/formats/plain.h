// Formats of one number a block: f32, f16, bf16, f64, the integers and booleans of safetensors and GGUF, little-endian, nothing shared between neighbours.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float_types.h"

namespace ridge::plain {

// Storage type -> float, and back for those that are written.
struct F32 { using Bits = float;    static float decode(float v) { return v; }                 static float encode(float x) { return x; } };
struct F16 { using Bits = uint16_t; static float decode(uint16_t v) { return f16_to_f32(v); }  static uint16_t encode(float x) { return f32_to_f16(x); } };
struct Bf16 { using Bits = uint16_t; static float decode(uint16_t v) { return bf16_to_f32(v); } static uint16_t encode(float x) { return f32_to_bf16(x); } };
template <class T> struct Number { using Bits = T; static float decode(T v) { return static_cast<float>(v); } };
struct Boolean { using Bits = uint8_t; static float decode(uint8_t v) { return v != 0 ? 1.0f : 0.0f; } };

template <class Type>
void decode_row(float* out, const std::byte* data, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    typename Type::Bits v;
    std::memcpy(&v, data + i * sizeof v, sizeof v);
    out[i] = Type::decode(v);
  }
}

template <class Type>
void encode_row(std::byte* data, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const typename Type::Bits v = Type::encode(x[i]);
    std::memcpy(data + i * sizeof v, &v, sizeof v);
  }
}

}  // namespace ridge::plain
