// Every op but those on KV pages: the formulas of op.h spelled out, in f32, one row after the other.
#include "ref/ref_ops.h"
#include "base/check.h"

#include <algorithm>
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
    case ActKind::relu2: return x > 0 ? x * x : 0.0f;
    case ActKind::sigmoid: return 1.0f / (1.0f + std::exp(-x));
    case ActKind::softplus: return x > 20 ? x : std::log1p(std::exp(x));
    case ActKind::identity: return x;
    case ActKind::gpt_oss: return x / (1.0f + std::exp(-1.702f * x));
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
  for (int64_t t = 0; t < op.x.rows; t++)
    for (int h = 0; h < op.n_heads; h++) {
      float* x = op.x.f32(t) + h * head_dim;
      const auto of_head = [&](const Tensor& vector) { return vector.f32() + (vector.cols == head_dim ? 0 : h * head_dim); };
      float mean = 0, square = mean_of_squares(x, head_dim);
      if (op.kind == NormKind::layer) {
        for (int64_t i = 0; i < head_dim; i++) mean += x[i];
        mean /= static_cast<float>(head_dim);
        square = 0;
        for (int64_t i = 0; i < head_dim; i++) square += (x[i] - mean) * (x[i] - mean);
        square /= static_cast<float>(head_dim);
      }
      if (op.kind == NormKind::l2) square *= static_cast<float>(head_dim);
      const float factor = 1.0f / std::sqrt(square + op.eps);
      for (int64_t i = 0; i < head_dim; i++)
        x[i] = (x[i] - mean) * factor * (op.weight ? of_head(op.weight)[i] + op.weight_offset : 1.0f) + (op.bias ? of_head(op.bias)[i] : 0.0f);
    }
}

void run(const AddScaled& op, const Step&) {
  for (int64_t t = 0; t < op.x.rows; t++)
    for (int64_t i = 0; i < op.x.cols; i++) op.x.f32(t)[i] += op.scale * op.y.f32(t)[i];
}

void run(const ScaleByPosition& op, const Step& step) {
  for (int64_t t = 0; t < op.x.rows; t++) {
    const float steps = std::floor(static_cast<float>(step.positions()[t] + op.offset) / static_cast<float>(op.floor_scale));
    const float scale = 1.0f + op.factor * std::log(1.0f + steps);
    for (int64_t i = 0; i < op.x.cols; i++) op.x.f32(t)[i] *= scale;
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

void run(const HeadMatmul& op, const Step& step) {
  const int64_t n_in = op.x.cols / op.n_heads, n_out = op.out.cols / op.n_heads;
  for (int h = 0; h < op.n_heads; h++) {
    const Weight& w = *op.w[h];
    CHECK_EQ(n_in - w.cols, n_out - w.rows);
    run(Matmul{.out = {op.out.slice_cols(h * n_out, w.rows)}, .x = op.x.slice_cols(h * n_in, w.cols), .w = {&w}}, step);
    for (int64_t t = 0; t < op.x.rows; t++) std::copy_n(op.x.f32(t) + h * n_in + w.cols, n_in - w.cols, op.out.f32(t) + h * n_out + w.rows);
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
  const int64_t shared = op.out.cols / op.gate.cols;
  for (int64_t t = 0; t < op.out.rows; t++)
    for (int64_t i = op.out.cols - 1; i >= 0; i--) {                        // backwards: a narrow gate may lie at the start of out
      float gate = op.gate.f32(t)[i / shared], up = op.up ? op.up.f32(t)[i] : 1.0f;
      if (op.limit > 0) {
        gate = std::min(gate, op.limit);
        up = std::clamp(up, -op.limit, op.limit);
      }
      if (op.kind == ActKind::gpt_oss) up += 1.0f;
      op.out.f32(t)[i] = activate(gate, op.kind) * up;
    }
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
