// The two ops on KV pages. A plane of a page is [page_size positions][n_heads * head_dim] in the plane's format: position p of a sequence is row
// p % page_size of the page that its table names at p / page_size.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ref/ref_ops.h"
#include "base/check.h"

namespace ridge::ref {
namespace {

// Row of a plane for one position of a sequence.
std::byte* kv_row(const KvRef& kv, int plane, const Step& step, const StepSeq& seq, int64_t position) {
  const int32_t page = step.pages()[seq.first_page[kv.group] + position / kv.page_size];
  CHECK_GE(page, 0);
  const KvPlane& p = kv.planes[plane];
  return kv.plane(plane, page) + position % kv.page_size * row_bytes(p.format, int64_t{p.n_heads} * p.head_dim);
}

void rotate(float* head, const float* angles, int64_t n_freqs, int n_rot, RopeStyle style) {
  const int n_pairs = n_rot / 2;
  for (int i = 0; i < n_pairs; i++) {
    float& a = head[style == RopeStyle::half ? i : 2 * i];
    float& b = head[style == RopeStyle::half ? i + n_pairs : 2 * i + 1];
    const float cosine = angles[i], sine = angles[n_freqs + i], a_old = a;
    a = a_old * cosine - b * sine;
    b = b * cosine + a_old * sine;
  }
}

}  // namespace

void run(const RopeStore& op, const Step& step) {
  for (int64_t t = 0; t < op.k.rows; t++) {
    if (op.angles) {
      const int64_t n_freqs = op.angles.cols / 2;
      for (int h = 0; h < op.n_heads; h++) rotate(op.q.f32(t) + int64_t{h} * op.head_dim, op.angles.f32(t), n_freqs, op.n_rot, op.style);
      for (int h = 0; h < op.n_kv_heads; h++) rotate(op.k.f32(t) + int64_t{h} * op.head_dim, op.angles.f32(t), n_freqs, op.n_rot, op.style);
    }
    const StepSeq& seq = step.seqs()[step.seq_of()[t]];
    const int32_t position = step.positions()[t];
    format(op.kv.planes[0].format).encode_row(kv_row(op.kv, 0, step, seq, position), op.k.f32(t), int64_t{op.n_kv_heads} * op.head_dim);
    format(op.kv.planes[1].format).encode_row(kv_row(op.kv, 1, step, seq, position), op.v.f32(t), int64_t{op.n_kv_heads} * op.v_dim);
  }
}

void run(const PagedAttention& op, const Step& step) {
  const int64_t k_cols = int64_t{op.n_kv_heads} * op.head_dim, v_cols = int64_t{op.n_kv_heads} * op.v_dim;
  std::vector<float> keys, values, scores;
  for (int64_t t = 0; t < op.q.rows; t++) {
    const StepSeq& seq = step.seqs()[step.seq_of()[t]];
    const int32_t position = step.positions()[t];
    const int32_t first = op.window > 0 ? std::max(0, position - op.window + 1) : 0;
    const size_t n = static_cast<size_t>(position - first + 1);
    keys.resize(n * static_cast<size_t>(k_cols));
    values.resize(n * static_cast<size_t>(v_cols));
    scores.resize(n);
    for (size_t i = 0; i < n; i++) {
      format(op.kv.planes[0].format).decode_row(&keys[i * static_cast<size_t>(k_cols)], kv_row(op.kv, 0, step, seq, first + static_cast<int64_t>(i)), k_cols);
      format(op.kv.planes[1].format).decode_row(&values[i * static_cast<size_t>(v_cols)], kv_row(op.kv, 1, step, seq, first + static_cast<int64_t>(i)), v_cols);
    }
    for (int h = 0; h < op.n_heads; h++) {
      const int kv_head = h / (op.n_heads / op.n_kv_heads);
      const float* q = op.q.f32(t) + int64_t{h} * op.head_dim;
      float largest = op.sinks ? op.sinks.f32()[h] : -std::numeric_limits<float>::infinity();
      for (size_t i = 0; i < n; i++) {
        const float* k = &keys[i * static_cast<size_t>(k_cols)] + int64_t{kv_head} * op.head_dim;
        float score = 0;
        for (int d = 0; d < op.head_dim; d++) score += q[d] * k[d];
        score *= op.scale;
        if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
        scores[i] = score;
        largest = std::max(largest, score);
      }
      float total = op.sinks ? std::exp(op.sinks.f32()[h] - largest) : 0.0f;
      float* out = op.out.f32(t) + int64_t{h} * op.v_dim;
      std::fill(out, out + op.v_dim, 0.0f);
      for (size_t i = 0; i < n; i++) {
        const float weight = std::exp(scores[i] - largest);
        const float* v = &values[i * static_cast<size_t>(v_cols)] + int64_t{kv_head} * op.v_dim;
        total += weight;
        for (int d = 0; d < op.v_dim; d++) out[d] += weight * v[d];
      }
      for (int d = 0; d < op.v_dim; d++) out[d] /= total;
    }
  }
}

}  // namespace ridge::ref
