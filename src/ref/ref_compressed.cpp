// The ops that choose among KV entries and that make compressed ones.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/top_k.h"
#include "ref/ref_ops.h"

namespace ridge::ref {
namespace {

// Entry `entry` of a sequence, before it is rotated: per dimension a softmax over the places of its block, and over those of the block before when they overlap.
void pool(std::vector<float>& out, const CompressKv& op, const Step& step, const StepSeq& seq, int64_t entry) {
  const int64_t every = op.bias.rows, width = op.bias.cols;
  const int64_t first = op.overlap && entry > 0 ? (entry - 1) * every : entry * every, n = (entry + 1) * every - first;
  std::vector<float> values(static_cast<size_t>(n * op.head_dim)), gates(values.size()), row(static_cast<size_t>(2 * width));
  for (int64_t i = 0; i < n; i++) {
    format(op.inputs.planes[0].format).decode_row(row.data(), kv_row(op.inputs, 0, step, seq, first + i), 2 * width);
    const int64_t half = op.overlap && first + i >= entry * every ? op.head_dim : 0;
    for (int64_t d = 0; d < op.head_dim; d++) {
      values[static_cast<size_t>(i * op.head_dim + d)] = row[static_cast<size_t>(half + d)];
      gates[static_cast<size_t>(i * op.head_dim + d)] = row[static_cast<size_t>(width + half + d)] + op.bias.f32((first + i) % every)[half + d];
    }
  }
  for (int64_t d = 0; d < op.head_dim; d++) {
    float largest = -std::numeric_limits<float>::infinity(), sum = 0, total = 0;
    for (int64_t i = 0; i < n; i++) largest = std::max(largest, gates[static_cast<size_t>(i * op.head_dim + d)]);
    for (int64_t i = 0; i < n; i++) {
      const float weight = std::exp(gates[static_cast<size_t>(i * op.head_dim + d)] - largest);
      sum += weight * values[static_cast<size_t>(i * op.head_dim + d)];
      total += weight;
    }
    out[static_cast<size_t>(d)] = sum / total;
  }
}

}  // namespace

void run(const IndexTopK& op, const Step& step) {
  std::vector<float> key(static_cast<size_t>(op.head_dim)), scores;
  std::vector<int32_t> order;
  for (int64_t t = 0; t < op.q.rows; t++) {
    const StepSeq& seq = step.seqs()[static_cast<size_t>(step.seq_of()[static_cast<size_t>(t)])];
    const int n = (step.positions()[static_cast<size_t>(t)] + 1) / op.kv.planes[0].every, top_k = static_cast<int>(op.selected.cols);
    scores.assign(static_cast<size_t>(n), 0.0f);
    for (int i = 0; i < n; i++) {
      format(op.kv.planes[0].format).decode_row(key.data(), kv_row(op.kv, 0, step, seq, i), op.head_dim);
      for (int h = 0; h < op.n_heads; h++) {
        const float dot = std::inner_product(key.begin(), key.end(), op.q.f32(t) + int64_t{h} * op.head_dim, 0.0f);
        scores[static_cast<size_t>(i)] += op.weights.f32(t)[h] * std::max(dot, 0.0f);
      }
    }
    order.resize(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    if (op.with_hindsight) {
      std::vector<Scored> all(static_cast<size_t>(seq.n_known / op.kv.planes[0].every));
      for (int i = 0; i < static_cast<int>(all.size()); i++) all[static_cast<size_t>(i)] = {i < n ? scores[static_cast<size_t>(i)] : -std::numeric_limits<float>::infinity(), i};
      select_top_k(all, top_k);
      order.clear();
      for (size_t i = 0; i < std::min(all.size(), static_cast<size_t>(top_k)); i++)
        if (all[i].entry < n) order.push_back(all[i].entry);
    } else {
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
      order.resize(std::min(order.size(), static_cast<size_t>(top_k)));
    }
    std::sort(order.begin(), order.end());
    order.resize(static_cast<size_t>(top_k), -1);
    std::copy(order.begin(), order.end(), op.selected.row_as<int32_t>(t));
  }
}

void run(const CompressKv& op, const Step& step) {
  const int64_t every = op.bias.rows;
  for (int64_t t = 0; t < op.x.rows; t++) {
    const StepSeq& seq = step.seqs()[static_cast<size_t>(step.seq_of()[static_cast<size_t>(t)])];
    format(op.inputs.planes[0].format).encode_row(kv_row(op.inputs, 0, step, seq, step.positions()[static_cast<size_t>(t)]), op.x.f32(t), op.x.cols);
  }
  std::vector<float> entry(static_cast<size_t>(op.head_dim)), angles(static_cast<size_t>(op.n_rot));
  for (int64_t t = 0; t < op.x.rows; t++) {
    const int64_t position = step.positions()[static_cast<size_t>(t)];
    if ((position + 1) % every != 0) continue;
    const StepSeq& seq = step.seqs()[static_cast<size_t>(step.seq_of()[static_cast<size_t>(t)])];
    pool(entry, op, step, seq, position / every);
    run(HeadNorm{.x = view(entry.data(), FormatId::f32, 1, op.head_dim), .weight = op.norm, .n_heads = 1, .eps = op.eps}, step);
    const float* freqs = step.rope_freqs(op.rope, seq.rope_row);
    const float first = static_cast<float>(position + 1 - every), factor = freqs[step.limits().n_freqs];
    for (int i = 0; i < op.n_rot / 2; i++) {
      angles[static_cast<size_t>(i)] = std::cos(first * freqs[i]) * factor;
      angles[static_cast<size_t>(op.n_rot / 2 + i)] = std::sin(first * freqs[i]) * factor;
    }
    rotate(entry.data() + op.head_dim - op.n_rot, angles.data(), op.n_rot / 2, op.n_rot, op.style, false);
    format(op.entries.planes[0].format).encode_row(kv_row(op.entries, 0, step, seq, position / every), entry.data(), op.head_dim);
  }
}

}  // namespace ridge::ref
