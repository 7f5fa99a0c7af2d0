// The vocabulary on aarch64: four q registers, with dotprod and fp16 conversions (armv8.2-a+dotprod+fp16).
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace ridge::cpu::neon {

// Named members, not arrays: they stay in registers at any optimization level.
struct F { float32x4_t a, b, c, d; };
struct I { int32x4_t a, b, c, d; };
struct B { uint8x16_t a, b, c, d; };
struct Mask { uint32x4_t a, b, c, d; };

template <class R, class X, class Fn> inline R map(Fn fn, const X& x) { return {fn(x.a), fn(x.b), fn(x.c), fn(x.d)}; }
template <class R, class X, class Y, class Fn> inline R map(Fn fn, const X& x, const Y& y) { return {fn(x.a, y.a), fn(x.b, y.b), fn(x.c, y.c), fn(x.d, y.d)}; }
template <class R, class X, class Y, class Z, class Fn> inline R map(Fn fn, const X& x, const Y& y, const Z& z) {
  return {fn(x.a, y.a, z.a), fn(x.b, y.b, z.b), fn(x.c, y.c, z.c), fn(x.d, y.d, z.d)};
}

inline F set1(float x) { const float32x4_t v = vdupq_n_f32(x); return {v, v, v, v}; }
inline F zero() { return set1(0.0f); }
inline F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
inline void store(float* p, F x) { vst1q_f32(p, x.a); vst1q_f32(p + 4, x.b); vst1q_f32(p + 8, x.c); vst1q_f32(p + 12, x.d); }
inline F load_n(const float* p, int n) {
  if (n >= 16) return load(p);
  float v[16] = {};
  if (n > 0) std::memcpy(v, p, 4 * static_cast<size_t>(n));
  return load(v);
}
inline void store_n(float* p, F x, int n) {
  if (n >= 16) return store(p, x);
  float v[16];
  store(v, x);
  if (n > 0) std::memcpy(p, v, 4 * static_cast<size_t>(n));
}

using V = float32x4_t;
inline F add(F x, F y) { return map<F>([](V p, V q) { return vaddq_f32(p, q); }, x, y); }
inline F sub(F x, F y) { return map<F>([](V p, V q) { return vsubq_f32(p, q); }, x, y); }
inline F mul(F x, F y) { return map<F>([](V p, V q) { return vmulq_f32(p, q); }, x, y); }
inline F div(F x, F y) { return map<F>([](V p, V q) { return vdivq_f32(p, q); }, x, y); }
// fmin and fmax of the ISA treat NaNs and signed zeros differently from x86: compare and select, which is alike everywhere.
inline V min4(V p, V q) { return vbslq_f32(vcltq_f32(p, q), p, q); }
inline V max4(V p, V q) { return vbslq_f32(vcgtq_f32(p, q), p, q); }
inline F min(F x, F y) { return map<F>(min4, x, y); }
inline F max(F x, F y) { return map<F>(max4, x, y); }
inline F fma(F x, F y, F z) { return map<F>([](V p, V q, V r) { return vfmaq_f32(r, p, q); }, x, y, z); }
inline F neg(F x) { return map<F>([](V p) { return vnegq_f32(p); }, x); }
inline F abs(F x) { return map<F>([](V p) { return vabsq_f32(p); }, x); }
inline F sqrt(F x) { return map<F>([](V p) { return vsqrtq_f32(p); }, x); }
inline F floor(F x) { return map<F>([](V p) { return vrndmq_f32(p); }, x); }
inline F round_even(F x) { return map<F>([](V p) { return vrndnq_f32(p); }, x); }

inline Mask lt(F x, F y) { return map<Mask>([](V p, V q) { return vcltq_f32(p, q); }, x, y); }
inline Mask le(F x, F y) { return map<Mask>([](V p, V q) { return vcleq_f32(p, q); }, x, y); }
inline Mask gt(F x, F y) { return map<Mask>([](V p, V q) { return vcgtq_f32(p, q); }, x, y); }
inline Mask ge(F x, F y) { return map<Mask>([](V p, V q) { return vcgeq_f32(p, q); }, x, y); }
inline Mask first_n(int n) {
  static constexpr int32_t kCount[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int32x4_t limit = vdupq_n_s32(n);
  return {vcltq_s32(vld1q_s32(kCount), limit), vcltq_s32(vld1q_s32(kCount + 4), limit), vcltq_s32(vld1q_s32(kCount + 8), limit),
          vcltq_s32(vld1q_s32(kCount + 12), limit)};
}
inline F select(Mask m, F x, F y) { return map<F>([](uint32x4_t k, V p, V q) { return vbslq_f32(k, p, q); }, m, x, y); }

using W = int32x4_t;
inline I iset1(int32_t x) { const W v = vdupq_n_s32(x); return {v, v, v, v}; }
// Sums wrap around, as on every ISA: GCC has them on signed numbers as ordinary additions, which must not.
inline uint32x4_t bits(W x) { return vreinterpretq_u32_s32(x); }
inline W wrapped(uint32x4_t x) { return vreinterpretq_s32_u32(x); }
inline I izero() { return iset1(0); }
inline I iload(const int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}; }
inline void istore(int32_t* p, I x) { vst1q_s32(p, x.a); vst1q_s32(p + 4, x.b); vst1q_s32(p + 8, x.c); vst1q_s32(p + 12, x.d); }
inline I iadd(I x, I y) { return map<I>([](W p, W q) { return wrapped(vaddq_u32(bits(p), bits(q))); }, x, y); }
inline I isub(I x, I y) { return map<I>([](W p, W q) { return wrapped(vsubq_u32(bits(p), bits(q))); }, x, y); }
inline I imul(I x, I y) { return map<I>([](W p, W q) { return wrapped(vmulq_u32(bits(p), bits(q))); }, x, y); }
inline I and_(I x, I y) { return map<I>([](W p, W q) { return vandq_s32(p, q); }, x, y); }
inline I or_(I x, I y) { return map<I>([](W p, W q) { return vorrq_s32(p, q); }, x, y); }
inline I xor_(I x, I y) { return map<I>([](W p, W q) { return veorq_s32(p, q); }, x, y); }
template <int n> inline I shl(I x) { return map<I>([](W p) { return vshlq_n_s32(p, n); }, x); }
template <int n> inline I shr(I x) { return map<I>([](W p) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(p), n)); }, x); }
inline F to_float(I x) { return map<F>([](W p) { return vcvtq_f32_s32(p); }, x); }
inline I to_int(F x) { return map<I>([](V p) { return vcvtnq_s32_f32(p); }, x); }
inline I as_int(F x) { return map<I>([](V p) { return vreinterpretq_s32_f32(p); }, x); }
inline F as_float(I x) { return map<F>([](W p) { return vreinterpretq_f32_s32(p); }, x); }

inline F from_f16(uint16x8_t lo, uint16x8_t hi) {
  const float16x8_t l = vreinterpretq_f16_u16(lo), h = vreinterpretq_f16_u16(hi);
  return {vcvt_f32_f16(vget_low_f16(l)), vcvt_high_f32_f16(l), vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
inline F load_f16(const uint16_t* p) { return from_f16(vld1q_u16(p), vld1q_u16(p + 8)); }
inline void store_f16(uint16_t* p, F x) {
  vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
  vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d)));
}
inline F load_bf16(const uint16_t* p) {
  const uint16x8_t lo = vld1q_u16(p), hi = vld1q_u16(p + 8);
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(lo), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(lo, 16)),
          vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(hi), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(hi, 16))};
}
inline uint16x4_t bf16_of(V x) {
  const uint32x4_t b = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(b, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(vaddq_u32(b, vdupq_n_u32(0x7fff)), odd);
  return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, vorrq_u32(b, vdupq_n_u32(0x400000))), 16);      // a NaN stays one
}
inline void store_bf16(uint16_t* p, F x) {
  vst1q_u16(p, vcombine_u16(bf16_of(x.a), bf16_of(x.b)));
  vst1q_u16(p + 8, vcombine_u16(bf16_of(x.c), bf16_of(x.d)));
}
// As an f16 with the same exponent bits the value is 2^-8 of what it should be: the biases are 7 and 15.
inline F load_e4m3(const uint8_t* p) {
  const int8x16_t v = vld1q_s8(reinterpret_cast<const int8_t*>(p));
  // Shifted with its sign a byte has the bits of an f16 (of 2^-8 times the number) but for bit 14, which repeats the sign.
  const auto halves = [](int16x8_t shifted) { return vandq_u16(vreinterpretq_u16_s16(shifted), vdupq_n_u16(0xbfff)); };
  return mul(from_f16(halves(vshll_n_s8(vget_low_s8(v), 7)), halves(vshll_high_n_s8(v, 7))), set1(256.0f));
}
inline F cvt_i8(const int8_t* p) {
  const int8x16_t v = vld1q_s8(p);
  const int16x8_t lo = vmovl_s8(vget_low_s8(v)), hi = vmovl_high_s8(v);
  return to_float(I{vmovl_s16(vget_low_s16(lo)), vmovl_high_s16(lo), vmovl_s16(vget_low_s16(hi)), vmovl_high_s16(hi)});
}
inline void store_i8(int8_t* p, I x) {
  const int16x8_t lo = vmovn_high_s32(vmovn_s32(x.a), x.b), hi = vmovn_high_s32(vmovn_s32(x.c), x.d);
  vst1q_s8(p, vmovn_high_s16(vmovn_s16(lo), hi));
}

inline float reduce_add(F x) {
  const V four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float reduce_max(F x) {
  const V four = max4(max4(x.a, x.c), max4(x.b, x.d));
  const V two = max4(four, vextq_f32(four, four, 2));
  const float p = vgetq_lane_f32(two, 0), q = vgetq_lane_f32(two, 1);
  return p > q ? p : q;
}

using C = uint8x16_t;
inline B bload(const void* p) { const auto* q = static_cast<const uint8_t*>(p); return {vld1q_u8(q), vld1q_u8(q + 16), vld1q_u8(q + 32), vld1q_u8(q + 48)}; }
inline void bstore(void* p, B x) { auto* q = static_cast<uint8_t*>(p); vst1q_u8(q, x.a); vst1q_u8(q + 16, x.b); vst1q_u8(q + 32, x.c); vst1q_u8(q + 48, x.d); }
inline B bset1(uint8_t x) { const C v = vdupq_n_u8(x); return {v, v, v, v}; }
inline B band(B x, B y) { return map<B>([](C p, C q) { return vandq_u8(p, q); }, x, y); }
inline B bor(B x, B y) { return map<B>([](C p, C q) { return vorrq_u8(p, q); }, x, y); }
inline B bxor(B x, B y) { return map<B>([](C p, C q) { return veorq_u8(p, q); }, x, y); }
inline B badd(B x, B y) { return map<B>([](C p, C q) { return vaddq_u8(p, q); }, x, y); }
inline B bsub(B x, B y) { return map<B>([](C p, C q) { return vsubq_u8(p, q); }, x, y); }
template <int n> inline B bshr(B x) { return map<B>([](C p) { return vshrq_n_u8(p, n); }, x); }
template <int n> inline B bshl(B x) { return map<B>([](C p) { return vshlq_n_u8(p, n); }, x); }
inline B bshr4(B x) { return bshr<4>(x); }
inline B btable(const int8_t* t) { const C v = vreinterpretq_u8_s8(vld1q_s8(t)); return {v, v, v, v}; }
inline B lookup16(B table, B nibbles) { return map<B>([t = table.a](C p) { return vqtbl1q_u8(t, p); }, nibbles); }

inline I dot4(I acc, B w, int32_t x) {
  const int8x16_t c = vreinterpretq_s8_s32(vdupq_n_s32(x));
  return map<I>([c](W s, C p) { return vdotq_s32(s, vreinterpretq_s8_u8(p), c); }, acc, w);
}
inline I dot4_small(I acc, B w, int32_t x) { return dot4(acc, w, x); }

}  // namespace ridge::cpu::neon
