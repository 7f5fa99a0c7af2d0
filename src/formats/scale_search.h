// What the encoders share: the scale of a block with the least squared error, found by trying scales around the largest value's and refitting the best.
//
// symmetric:  x ~ d q,      q in [lo, hi]      refit  d = sum(x q) / sum(q q)
// affine:     x ~ d q + m,  q in [0, hi]       refit  (d, m) by least squares of x on q
//
// A candidate counts with the error it has after d and m were rounded to what the block stores (`Round`), so plain rounding to nearest, which is the first
// candidate, is never beaten by a worse one.
#pragma once
#include <cmath>
#include <limits>

#include "base/float_types.h"

namespace ridge::scale_search {

// Nearest integer, ties to even, of v in [-2^22, 2^22]: adding 1.5 * 2^23 leaves no room for a fraction.
inline float nearest(float v) { return (v + 12582912.0f) - 12582912.0f; }

inline float clamp(float v, float lo, float hi) {        // a NaN becomes lo
  v = v > lo ? v : lo;
  return v < hi ? v : hi;
}

inline float round_f16(float d) {
  const float r = f16_to_f32(f32_to_f16(d));
  return std::isfinite(r) ? r : std::copysign(65504.0f, d);
}

inline int code(float x, float inverse, float lo, float hi) { return static_cast<int>(nearest(clamp(x * inverse, lo, hi))); }
inline float inverse(float d) { return d != 0 ? 1.0f / d : 0.0f; }

struct Extent {
  float min, max;
  float largest() const { return -min > max ? min : max; }            // the value of largest magnitude, with its sign
};

inline Extent extent(const float* x, int n) {
  Extent e{0, 0};
  for (int i = 0; i < n; ++i) {
    e.min = x[i] < e.min ? x[i] : e.min;
    e.max = x[i] > e.max ? x[i] : e.max;
  }
  return e;
}

template <int N>
float squared_error(const float* x, float d, float m, float lo, float hi) {
  const float id = inverse(d);
  float error = 0;
  for (int i = 0; i < N; ++i) {
    const float e = x[i] - (d * nearest(clamp((x[i] - m) * id, lo, hi)) + m);
    error += e * e;
  }
  return error;
}

template <int N, int lo, int hi, class Round>
float symmetric(const float* x, Round round) {
  const Extent range = extent(x, N);
  const float largest = range.largest();
  if (largest == 0) return 0;
  float best = 0, least = std::numeric_limits<float>::infinity();
  const auto consider = [&](float d) {
    const float error = squared_error<N>(x, d, 0, lo, hi);
    if (error < least) least = error, best = d;
  };
  // The end of the codes that the largest value maps to: the longer one gives the finer step, the other is a candidate as well.
  const float ends[2] = {-lo >= hi ? static_cast<float>(lo) : static_cast<float>(hi), -lo >= hi ? static_cast<float>(hi) : static_cast<float>(lo)};
  const int n_steps = hi > 100 ? 2 : 8;
  const float step = hi > 100 ? 0.25f : 0.0125f * static_cast<float>(hi - lo);
  for (const float end : ends)
    for (int k = 0; k <= 2 * n_steps; ++k) {
      const float offset = step * static_cast<float>(k % 2 ? (k + 1) / 2 : -k / 2);      // 0, +1, -1, +2, ... steps
      consider(round(largest / (end + (end < 0 ? -offset : offset))));
    }
  for (int pass = 0; pass < 2; ++pass) {
    const float id = inverse(best);
    float xq = 0, qq = 0;
    for (int i = 0; i < N; ++i) {
      const float q = nearest(clamp(x[i] * id, lo, hi));
      xq += x[i] * q;
      qq += q * q;
    }
    if (qq > 0) consider(round(xq / qq));
  }
  return best;
}

struct Line {
  float d, m;
};

// `m_is_negative` restricts m to m <= 0, for formats that store -m as an unsigned number.
template <int N, int hi, class Round>
Line affine(const float* x, Round round, bool m_is_negative = false) {
  float min = x[0], max = x[0];
  for (int i = 1; i < N; ++i) {
    min = x[i] < min ? x[i] : min;
    max = x[i] > max ? x[i] : max;
  }
  if (m_is_negative && min > 0) min = 0;
  Line best{0, round(min)};
  if (max - min <= 0) return best;
  float least = squared_error<N>(x, best.d, best.m, 0, hi);
  const auto consider = [&](float d, float m) {
    if (m_is_negative && m > 0) m = 0;
    d = round(d), m = round(m);
    const float error = squared_error<N>(x, d, m, 0, hi);
    if (error < least) least = error, best = {d, m};
  };
  consider((max - min) / hi, min);
  for (int k = -8; k <= 8; ++k) {
    const float inverse_d = (static_cast<float>(hi) + 0.1f * static_cast<float>(k)) / (max - min);
    float q1 = 0, q2 = 0, x1 = 0, xq = 0;
    for (int i = 0; i < N; ++i) {
      const float q = nearest(clamp((x[i] - min) * inverse_d, 0, hi));
      q1 += q, q2 += q * q, x1 += x[i], xq += x[i] * q;
    }
    const float determinant = N * q2 - q1 * q1;
    if (determinant <= 0) continue;
    float d = (N * xq - x1 * q1) / determinant, m = (q2 * x1 - q1 * xq) / determinant;
    if (m_is_negative && m > 0 && q2 > 0) m = 0, d = xq / q2;
    if (d > 0) consider(d, m);
  }
  return best;
}

}  // namespace ridge::scale_search
