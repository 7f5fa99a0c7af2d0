// The vocabulary on arrays of 16 and plain loops: what the other ISAs must agree with bit for bit, and what runs on a machine that has none of them.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float_types.h"

namespace ridge::cpu::scalar {

struct F { float v[16]; };
struct I { int32_t v[16]; };
struct B { uint8_t v[64]; };
struct Mask { bool v[16]; };

template <class R, class Fn> inline R lanes(Fn fn) {
  R r;
  for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
  return r;
}
template <class Fn> inline B bytes(Fn fn) {
  B r;
  for (int i = 0; i < 64; ++i) r.v[i] = static_cast<uint8_t>(fn(i));
  return r;
}

inline F set1(float x) { return lanes<F>([=](int) { return x; }); }
inline F zero() { return set1(0.0f); }
inline F load(const float* p) { return lanes<F>([=](int i) { return p[i]; }); }
inline void store(float* p, F a) { for (int i = 0; i < 16; ++i) p[i] = a.v[i]; }
inline F load_n(const float* p, int n) { return lanes<F>([=](int i) { return i < n ? p[i] : 0.0f; }); }
inline void store_n(float* p, F a, int n) { for (int i = 0; i < 16 && i < n; ++i) p[i] = a.v[i]; }

inline F add(F a, F b) { return lanes<F>([&](int i) { return a.v[i] + b.v[i]; }); }
inline F sub(F a, F b) { return lanes<F>([&](int i) { return a.v[i] - b.v[i]; }); }
inline F mul(F a, F b) { return lanes<F>([&](int i) { return a.v[i] * b.v[i]; }); }
inline F div(F a, F b) { return lanes<F>([&](int i) { return a.v[i] / b.v[i]; }); }
inline F min(F a, F b) { return lanes<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
inline F max(F a, F b) { return lanes<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline F fma(F a, F b, F c) { return lanes<F>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); }); }
inline F neg(F a) { return lanes<F>([&](int i) { return -a.v[i]; }); }
inline F abs(F a) { return lanes<F>([&](int i) { return __builtin_fabsf(a.v[i]); }); }
inline F sqrt(F a) { return lanes<F>([&](int i) { return __builtin_sqrtf(a.v[i]); }); }
inline F floor(F a) { return lanes<F>([&](int i) { return __builtin_floorf(a.v[i]); }); }
inline F round_even(F a) { return lanes<F>([&](int i) { return __builtin_rintf(a.v[i]); }); }

inline Mask lt(F a, F b) { return lanes<Mask>([&](int i) { return a.v[i] < b.v[i]; }); }
inline Mask le(F a, F b) { return lanes<Mask>([&](int i) { return a.v[i] <= b.v[i]; }); }
inline Mask gt(F a, F b) { return lanes<Mask>([&](int i) { return a.v[i] > b.v[i]; }); }
inline Mask ge(F a, F b) { return lanes<Mask>([&](int i) { return a.v[i] >= b.v[i]; }); }
inline Mask first_n(int n) { return lanes<Mask>([=](int i) { return i < n; }); }
inline F select(Mask m, F a, F b) { return lanes<F>([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; }); }

inline I iset1(int32_t x) { return lanes<I>([=](int) { return x; }); }
inline I izero() { return iset1(0); }
inline I iload(const int32_t* p) { return lanes<I>([=](int i) { return p[i]; }); }
inline void istore(int32_t* p, I a) { for (int i = 0; i < 16; ++i) p[i] = a.v[i]; }
inline I iadd(I a, I b) { return lanes<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i])); }); }
inline I isub(I a, I b) { return lanes<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) - static_cast<uint32_t>(b.v[i])); }); }
inline I imul(I a, I b) { return lanes<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) * static_cast<uint32_t>(b.v[i])); }); }
inline I and_(I a, I b) { return lanes<I>([&](int i) { return a.v[i] & b.v[i]; }); }
inline I or_(I a, I b) { return lanes<I>([&](int i) { return a.v[i] | b.v[i]; }); }
inline I xor_(I a, I b) { return lanes<I>([&](int i) { return a.v[i] ^ b.v[i]; }); }
template <int n> inline I shl(I a) { return lanes<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << n); }); }
template <int n> inline I shr(I a) { return lanes<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> n); }); }
inline F to_float(I a) { return lanes<F>([&](int i) { return static_cast<float>(a.v[i]); }); }
inline I to_int(F a) { return lanes<I>([&](int i) { return static_cast<int32_t>(__builtin_rintf(a.v[i])); }); }
inline I as_int(F a) { return std::bit_cast<I>(a); }
inline F as_float(I a) { return std::bit_cast<F>(a); }

inline F load_f16(const uint16_t* p) { return lanes<F>([=](int i) { return f16_to_f32(p[i]); }); }
inline F load_bf16(const uint16_t* p) { return lanes<F>([=](int i) { return bf16_to_f32(p[i]); }); }
inline void store_f16(uint16_t* p, F a) { for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(a.v[i]); }
inline void store_bf16(uint16_t* p, F a) { for (int i = 0; i < 16; ++i) p[i] = f32_to_bf16(a.v[i]); }
// As an f16 with the same exponent bits the value is 2^-8 of what it should be: the biases are 7 and 15.
inline F load_e4m3(const uint8_t* p) {
  return lanes<F>([=](int i) { return 256.0f * f16_to_f32(static_cast<uint16_t>((p[i] & 0x80) << 8 | (p[i] & 0x7f) << 7)); });
}
inline F cvt_i8(const int8_t* p) { return lanes<F>([=](int i) { return static_cast<float>(p[i]); }); }
inline void store_i8(int8_t* p, I a) { for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i]); }

template <class Fn> inline float reduce(F a, Fn fn) {
  for (int n = 8; n >= 1; n /= 2)
    for (int i = 0; i < n; ++i) a.v[i] = fn(a.v[i], a.v[i + n]);
  return a.v[0];
}
inline float reduce_add(F a) { return reduce(a, [](float x, float y) { return x + y; }); }
inline float reduce_max(F a) { return reduce(a, [](float x, float y) { return x > y ? x : y; }); }

inline B bload(const void* p) { B r; std::memcpy(r.v, p, 64); return r; }
inline void bstore(void* p, B a) { std::memcpy(p, a.v, 64); }
inline B bset1(uint8_t x) { return bytes([=](int) { return x; }); }
inline B band(B a, B b) { return bytes([&](int i) { return a.v[i] & b.v[i]; }); }
inline B bor(B a, B b) { return bytes([&](int i) { return a.v[i] | b.v[i]; }); }
inline B bxor(B a, B b) { return bytes([&](int i) { return a.v[i] ^ b.v[i]; }); }
inline B badd(B a, B b) { return bytes([&](int i) { return a.v[i] + b.v[i]; }); }
inline B bsub(B a, B b) { return bytes([&](int i) { return a.v[i] - b.v[i]; }); }
template <int n> inline B bshr(B a) { return bytes([&](int i) { return a.v[i] >> n; }); }
template <int n> inline B bshl(B a) { return bytes([&](int i) { return a.v[i] << n; }); }
inline B bshr4(B a) { return bshr<4>(a); }
inline B btable(const int8_t* t) { return bytes([=](int i) { return t[i % 16]; }); }
inline B lookup16(B table, B nibbles) { return bytes([&](int i) { return table.v[nibbles.v[i] & 15]; }); }

inline I dot4(I acc, B w, int32_t x) {
  int8_t c[4];
  std::memcpy(c, &x, 4);
  for (int n = 0; n < 16; ++n)
    for (int j = 0; j < 4; ++j) acc.v[n] += static_cast<int8_t>(w.v[4 * n + j]) * c[j];
  return acc;
}
inline I dot4_small(I acc, B w, int32_t x) { return dot4(acc, w, x); }

}  // namespace ridge::cpu::scalar
