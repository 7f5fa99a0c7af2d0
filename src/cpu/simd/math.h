// exp, tanh, erf and the activations made of them, on 16 lanes. One polynomial each, evaluated with the same fused operations on every ISA, so every ISA
// gives the same bits. A NaN stays one.
//
//   exp    x = n ln 2 + r, |r| <= ln 2 / 2; e^x = 2^n (1 + r + r^2 p(r))                       1 ulp; below -87.3 exactly 0
//   tanh   |x| < 0.625: x + x^3 p(x^2); else 1 - 2 / (e^(2|x|) + 1)                            2 ulp
//   erf    |x| < 1: x + x p(x^2); else 1 - e^(-q(|x|)), q a fit of -log erfc on [1, 4]          1e-7 absolute
#pragma once
#include "cpu/simd/vocabulary.h"

namespace ridge::cpu::RIDGE_ISA_NS {

template <int n> inline F horner(F x, const float (&c)[n]) {              // c[0] + x (c[1] + x (...))
  F r = set1(c[n - 1]);
  for (int i = n - 2; i >= 0; --i) r = fma(r, x, set1(c[i]));
  return r;
}

// e^y for y between these, where 2^n is a normal float. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
inline constexpr float kExpLowest = -87.3f, kExpHighest = 88.37f;
inline F exp_in_range(F y) {
  constexpr float kP[] = {5.0000001201e-1f, 1.6666665459e-1f, 4.1665795894e-2f, 8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f};
  const F rounder = set1(12582912.0f), t = fma(y, set1(1.44269504088896341f), rounder), n = sub(t, rounder);
  const F r = fma(n, set1(2.12194440e-4f), fma(n, set1(-0.693359375f), y));       // ln 2 in two parts, the first with few bits
  const F p = fma(mul(r, r), horner(r, kP), add(r, set1(1.0f)));
  return mul(p, as_float(shl<23>(iadd(as_int(t), iset1(127)))));
}

inline F exp_of_nonpositive(F x) { return select(lt(x, set1(kExpLowest)), zero(), exp_in_range(max(set1(kExpLowest), x))); }
inline F exp(F x) {
  const F e = exp_in_range(max(set1(kExpLowest), min(set1(kExpHighest), x)));
  return select(lt(x, set1(kExpLowest)), zero(), select(gt(x, set1(kExpHighest)), set1(__builtin_inff()), e));
}

inline F with_sign_of(F magnitude, F x) { return as_float(or_(as_int(magnitude), and_(as_int(x), iset1(INT32_MIN)))); }

inline F tanh(F x) {
  constexpr float kP[] = {-3.33332819422e-1f, 1.33314422036e-1f, -5.37397155531e-2f, 2.06390887954e-2f, -5.70498872745e-3f};
  const F a = abs(x), z = mul(x, x);
  const F small = fma(mul(horner(z, kP), z), x, x);
  const F large = sub(set1(1.0f), div(set1(2.0f), add(exp(add(a, a)), set1(1.0f))));
  return select(lt(a, set1(0.625f)), small, with_sign_of(large, x));
}

inline F erf(F x) {
  constexpr float kP[] = {0.12837916612625122f, -0.3761262595653534f, 0.11283597350120544f, -0.02685432881116867f, 0.005189312156289816f,
                          -0.0008018855005502701f, 7.882497448008507e-05f};
  constexpr float kQ[] = {8.793370216153562e-05f, 1.1283832788467407f, 0.635378897190094f, 0.1063130795955658f, -0.02401258982717991f,
                          0.003809518413618207f, -0.00037103737122379243f, 1.6485926607856527e-05f};
  const F a = abs(x), t = min(set1(4.0f), a);
  const F small = fma(horner(mul(x, x), kP), x, x);
  const F large = sub(set1(1.0f), exp(neg(horner(t, kQ))));
  return select(lt(a, set1(1.0f)), small, with_sign_of(large, x));
}

inline F sigmoid(F x) { return div(set1(1.0f), add(set1(1.0f), exp(neg(x)))); }
inline F silu(F x) { return div(x, add(set1(1.0f), exp(neg(x)))); }
inline F gelu_tanh(F x) {
  const F cubic = mul(mul(mul(set1(0.044715f), x), x), x);
  return mul(mul(set1(0.5f), x), add(set1(1.0f), tanh(mul(set1(0.7978845608028654f), add(x, cubic)))));
}
inline F gelu_erf(F x) { return mul(mul(set1(0.5f), x), add(set1(1.0f), erf(mul(x, set1(0.7071067811865476f))))); }
inline F relu(F x) { return select(le(x, zero()), zero(), x); }

// max(x, 0) + log(1 + e^-|x|); the logarithm is 2 artanh(s) with s = y / (2 + y) <= 1/3, a series in s^2.
inline F softplus(F x) {
  constexpr float kP[] = {2.0f, 2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9, 2.0f / 11, 2.0f / 13, 2.0f / 15};
  const F y = exp(neg(abs(x))), s = div(y, add(y, set1(2.0f)));
  return add(select(gt(x, zero()), x, zero()), mul(s, horner(mul(s, s), kP)));
}

inline F soft_cap(F x, float cap) { return mul(set1(cap), tanh(div(x, set1(cap)))); }

}  // namespace ridge::cpu::RIDGE_ISA_NS
