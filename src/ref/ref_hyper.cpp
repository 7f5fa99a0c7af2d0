// Hyper-connections: the factors of a part, what goes into it, and what comes back.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ref/ref_ops.h"

namespace ridge::ref {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Divides every line of an n x n matrix by its sum + eps: rows, or columns.
void divide_by_sums(float* mix, int n, bool columns, float eps) {
  for (int a = 0; a < n; a++) {
    float sum = 0;
    for (int b = 0; b < n; b++) sum += columns ? mix[b * n + a] : mix[a * n + b];
    for (int b = 0; b < n; b++) (columns ? mix[b * n + a] : mix[a * n + b]) /= sum + eps;
  }
}

void make_mix(float* mix, const HyperEnter& op) {
  for (int i = 0; i < op.n; i++) {
    float* row = mix + i * op.n;
    const float largest = *std::max_element(row, row + op.n);
    float sum = 0;
    for (int j = 0; j < op.n; j++) sum += row[j] = std::exp(row[j] - largest);
    for (int j = 0; j < op.n; j++) row[j] = row[j] / sum + op.eps;
  }
  divide_by_sums(mix, op.n, true, op.eps);
  for (int i = 1; i < op.iterations; i++) {
    divide_by_sums(mix, op.n, false, op.eps);
    divide_by_sums(mix, op.n, true, op.eps);
  }
}

}  // namespace

void run(const HyperEnter& op, const Step&) {
  const int n = op.n;
  for (int64_t t = 0; t < op.x.rows; t++) {
    float* w = op.weights.f32(t);
    for (int64_t i = 0; i < op.weights.cols; i++) w[i] = w[i] * op.scale.f32()[i < n ? 0 : i < 2 * n ? 1 : 2] + op.base.f32()[i];
    for (int i = 0; i < n; i++) w[i] = sigmoid(w[i]) + op.eps;
    if (op.weights.cols > n) {
      for (int i = n; i < 2 * n; i++) w[i] = 2.0f * sigmoid(w[i]);
      make_mix(w + 2 * n, op);
    }
    for (int64_t d = 0; d < op.out.cols; d++) {
      float sum = 0;
      for (int i = 0; i < n; i++) sum += w[i] * op.x.f32(t)[i * op.out.cols + d];
      op.out.f32(t)[d] = sum;
    }
  }
}

void run(const HyperLeave& op, const Step&) {
  const int n = op.n;
  std::vector<float> old(static_cast<size_t>(n));
  for (int64_t t = 0; t < op.x.rows; t++) {
    const float *out = op.weights.f32(t) + n, *mix = out + n;
    for (int64_t d = 0; d < op.y.cols; d++) {
      for (int j = 0; j < n; j++) old[static_cast<size_t>(j)] = op.x.f32(t)[j * op.y.cols + d];
      for (int k = 0; k < n; k++) {
        float sum = out[k] * op.y.f32(t)[d];
        for (int j = 0; j < n; j++) sum += mix[j * n + k] * old[static_cast<size_t>(j)];
        op.x.f32(t)[k * op.y.cols + d] = sum;
      }
    }
  }
}

}  // namespace ridge::ref
