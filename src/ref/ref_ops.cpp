// Every op but those on KV pages: the formulas of op.h spelled out, in f32, one row after the other.
#include "ref/ref_ops.h"
#include "base/check.h"

#include <cmath>
#include <vector>

namespace ridge::ref {
namespace {

float mean_of_squares(const float* x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum / static_cast<float>(n);
}

float activate(float x, ActKind kind) {
  switch (kind) {
    case ActKind::silu: return x / (1.0f + std::exp(-x));
    case ActKind::gelu_tanh: return 0.5f * x * (1.0f + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case ActKind::gelu_erf: return 0.5f * x * (1.0f + std::erf(x * 0.7071067811865476f));
    case ActKind::relu: return x > 0 ? x : 0.0f;
  }
  return x;
}

}  // namespace

void run(const Embed& op, const Step& step) {
  std::vector<float> buffer(static_cast<size_t>(op.table->cols));
  for (int64_t t = 0; t < op.out.rows; t++) {
    const int32_t row = op.by_position ? step.positions()[t] : step.tokens()[t];
    CHECK(row >= 0 && row < op.table->rows);
    const float* values = weight_row(buffer.data(), *op.table, row);
    float* out = op.out.f32(t);
    for (int64_t i = 0; i < op.table->cols; i++) out[i] = (op.add ? out[i] : 0.0f) + values[i] * op.scale;
  }
}

void run(const AddNorm& op, const Step&) {
  const int64_t n = op.out.cols;
  for (int64_t t = 0; t < op.out.rows; t++) {
    float* x = op.x.f32(t);
    if (op.pending)
      for (int64_t i = 0; i < n; i++) x[i] += op.pending_scale * op.pending.f32(t)[i];
    float mean = 0, variance = mean_of_squares(x, n);
    if (op.kind == NormKind::layer) {
      for (int64_t i = 0; i < n; i++) mean += x[i];
      mean /= static_cast<float>(n);
      variance = 0;
      for (int64_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean);
      variance /= static_cast<float>(n);
    }
    const float factor = 1.0f / std::sqrt(variance + op.eps);
    float* out = op.out.f32(t);
    for (int64_t i = 0; i < n; i++) {
      const float weight = op.weight ? op.weight.f32()[i] + op.weight_offset : 1.0f;
      out[i] = (x[i] - mean) * factor * weight + (op.bias ? op.bias.f32()[i] : 0.0f);
    }
  }
}

void run(const HeadNorm& op, const Step&) {
  const int64_t head_dim = op.x.cols / op.n_heads;
  CHECK(op.weight.cols == head_dim || op.weight.cols == op.x.cols);
  for (int64_t t = 0; t < op.x.rows; t++)
    for (int h = 0; h < op.n_heads; h++) {
      float* x = op.x.f32(t) + h * head_dim;
      const float* weight = op.weight.f32() + (op.weight.cols == head_dim ? 0 : h * head_dim);
      const float factor = 1.0f / std::sqrt(mean_of_squares(x, head_dim) + op.eps);
      for (int64_t i = 0; i < head_dim; i++) x[i] = x[i] * factor * (weight[i] + op.weight_offset);
    }
}

void run(const Matmul& op, const Step&) {
  std::vector<float> buffer(static_cast<size_t>(op.x.cols));
  for (size_t i = 0; i < op.w.size(); i++) {
    if (!op.w[i]) continue;
    const Weight& w = *op.w[i];
    CHECK_EQ(w.cols, op.x.cols);
    CHECK_EQ(w.rows, op.out[i].cols);
    for (int64_t r = 0; r < w.rows; r++) {
      const float* row = weight_row(buffer.data(), w, r);
      for (int64_t t = 0; t < op.x.rows; t++) {
        const float* x = op.x.f32(t);
        float sum = 0;
        for (int64_t k = 0; k < w.cols; k++) sum += row[k] * x[k];
        op.out[i].f32(t)[r] = sum + (op.bias[i] ? op.bias[i].f32()[r] : 0.0f);
      }
    }
  }
}

void run(const RopeAngles& op, const Step& step) {
  for (int64_t t = 0; t < op.angles.rows; t++) {
    const float* freqs = step.rope_freqs(op.rope, step.seqs()[step.seq_of()[t]].rope_row);
    const float factor = freqs[step.limits().n_freqs], position = static_cast<float>(step.positions()[t]);
    float* angles = op.angles.f32(t);
    for (int i = 0; i < op.n_freqs; i++) {
      angles[i] = std::cos(position * freqs[i]) * factor;
      angles[op.n_freqs + i] = std::sin(position * freqs[i]) * factor;
    }
  }
}

void run(const Activate& op, const Step&) {
  for (int64_t t = 0; t < op.out.rows; t++)
    for (int64_t i = 0; i < op.out.cols; i++) op.out.f32(t)[i] = activate(op.gate.f32(t)[i], op.kind) * (op.up ? op.up.f32(t)[i] : 1.0f);
}

void run(const GatherRows& op, const Step& step) {
  for (int64_t i = 0; i < op.out.rows; i++) {
    const int32_t row = step.logit_rows()[i];
    for (int64_t c = 0; c < op.out.cols; c++) op.out.f32(i)[c] = op.x.f32(row)[c] + (op.pending ? op.pending_scale * op.pending.f32(row)[c] : 0.0f);
  }
}

void run(const ScaleCap& op, const Step&) {
  for (int64_t t = 0; t < op.x.rows; t++)
    for (int64_t i = 0; i < op.x.cols; i++) {
      float& x = op.x.f32(t)[i];
      x = op.cap > 0 ? op.cap * std::tanh(x * op.scale / op.cap) : x * op.scale;
    }
}

}  // namespace ridge::ref
