// The ops on KV pages. A plane of a page is [page_size / every entries][n_heads * head_dim] in the plane's format, in fp8_e4m3 with the entry's scales [n_heads]
// behind each; entry_place() says where an entry lies.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ref/ref_ops.h"
#include "base/check.h"
#include "formats/kv_fp8.h"

namespace ridge::ref {

std::byte* kv_row(const KvRef& kv, int plane, const Step& step, const StepSeq& seq, int64_t i) {
  const KvPlane& p = kv.planes[static_cast<size_t>(plane)];
  const EntryPlace place = entry_place(i, p.every, kv.page_size);
  const int32_t page = step.pages()[seq.first_page[kv.group] + place.page];
  CHECK_GE(page, 0);
  return kv.plane(plane, page) + place.slot * entry_bytes(p);
}

void rotate(float* head, const float* angles, int64_t n_freqs, int n_rot, RopeStyle style, bool back) {
  const int n_pairs = n_rot / 2;
  for (int i = 0; i < n_pairs; i++) {
    float& a = head[style == RopeStyle::half ? i : 2 * i];
    float& b = head[style == RopeStyle::half ? i + n_pairs : 2 * i + 1];
    const float cosine = angles[i], sine = back ? -angles[n_freqs + i] : angles[n_freqs + i], a_old = a;
    a = a_old * cosine - b * sine;
    b = b * cosine + a_old * sine;
  }
}

namespace {

struct Seen { const KvRef* kv; int32_t i; };

// What token row t, at `position`, sees: compressed entries, then positions.
void entries_seen(std::vector<Seen>& seen, const PagedAttention& op, int64_t t, int32_t position) {
  seen.clear();
  const KvRef* const entries = op.entries.base ? &op.entries : nullptr;
  if (op.selected) {
    const auto* selected = op.selected.row_as<const int32_t>(t);
    for (int64_t i = 0; i < op.selected.cols && selected[i] >= 0; i++) seen.push_back({entries ? entries : &op.kv, selected[i]});
    if (!entries) return;
  } else if (entries) {
    for (int32_t i = 0; i < (position + 1) / entries->planes[0].every; i++) seen.push_back({entries, i});
  }
  int32_t first = op.window > 0 ? std::max(0, position - op.window + 1) : 0;
  if (op.chunk > 0) first = std::max(first, position - position % op.chunk);
  for (int32_t p = first; p <= position; p++) seen.push_back({&op.kv, p});
}

void encode_entry(std::byte* entry, const KvPlane& plane, const float* x) {
  const int64_t n = int64_t{plane.n_heads} * plane.head_dim;
  if (plane.format != FormatId::fp8_e4m3) return format(plane.format).encode_row(entry, x, n);
  for (int h = 0; h < plane.n_heads; h++) {
    const float scale = encode_kv_fp8(reinterpret_cast<uint8_t*>(entry) + h * plane.head_dim, x + h * plane.head_dim, plane.head_dim);
    std::memcpy(entry + n + 4 * h, &scale, 4);
  }
}

void decode_entry(float* x, const std::byte* entry, const KvPlane& plane) {
  const int64_t n = int64_t{plane.n_heads} * plane.head_dim;
  if (plane.format != FormatId::fp8_e4m3) return format(plane.format).decode_row(x, entry, n);
  for (int h = 0; h < plane.n_heads; h++) {
    float scale;
    std::memcpy(&scale, entry + n + 4 * h, 4);
    decode_kv_fp8(x + h * plane.head_dim, reinterpret_cast<const uint8_t*>(entry) + h * plane.head_dim, scale, plane.head_dim);
  }
}

}  // namespace

void run(const RopeStore& op, const Step& step) {
  for (int64_t t = 0; t < op.q.rows; t++) {
    const auto rotate_heads = [&](const Tensor& x, int n_heads) {
      for (int h = 0; h < n_heads; h++) rotate(x.f32(t) + int64_t{h} * op.head_dim + op.rot_first, op.angles.f32(t), op.angles.cols / 2, op.n_rot, op.style, op.back);
    };
    if (op.angles) rotate_heads(op.q, op.n_heads);
    if (!op.k) continue;
    if (op.angles) rotate_heads(op.k, op.n_kv_heads);
    const StepSeq& seq = step.seqs()[step.seq_of()[t]];
    const int32_t position = step.positions()[t];
    encode_entry(kv_row(op.kv, 0, step, seq, position), op.kv.planes[0], op.k.f32(t));
    if (op.v) encode_entry(kv_row(op.kv, 1, step, seq, position), op.kv.planes[1], op.v.f32(t));
  }
}

void run(const PagedAttention& op, const Step& step) {
  const int64_t k_cols = int64_t{op.n_kv_heads} * op.head_dim, v_cols = int64_t{op.n_kv_heads} * op.v_dim;
  std::vector<Seen> seen;
  std::vector<float> keys, values, scores;
  for (int64_t t = 0; t < op.q.rows; t++) {
    const StepSeq& seq = step.seqs()[step.seq_of()[t]];
    const int32_t position = step.positions()[t];
    entries_seen(seen, op, t, position);
    const size_t n = seen.size();
    keys.resize(n * static_cast<size_t>(k_cols));
    values.resize(n * static_cast<size_t>(v_cols));
    scores.resize(n);
    for (size_t i = 0; i < n; i++) {
      float* const key = &keys[i * static_cast<size_t>(k_cols)];
      decode_entry(key, kv_row(*seen[i].kv, 0, step, seq, seen[i].i), seen[i].kv->planes[0]);
      if (op.value_in_key) std::copy_n(key, v_cols, &values[i * static_cast<size_t>(v_cols)]);
      else decode_entry(&values[i * static_cast<size_t>(v_cols)], kv_row(op.kv, 1, step, seq, seen[i].i), op.kv.planes[1]);
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
