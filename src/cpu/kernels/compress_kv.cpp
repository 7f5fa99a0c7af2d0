// Compressed KV: what the tokens bring is kept, and where a block ends its entry is made: a softmax over positions for each dimension on its own, 16 at a time.
#include <math.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/kv_rows.h"
#include "cpu/simd/math.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

// The blocks that an entry is made of; a place is a position with the half of its numbers that counts.
struct Places {
  int64_t every, width, first, n, own;       // positions [first, first + n); from `own` on they are the entry's own block
  int half;

  Places(const CompressKv& op, int64_t entry)
      : every(op.bias.rows), width(op.bias.cols), first(op.overlap && entry > 0 ? (entry - 1) * every : entry * every), n((entry + 1) * every - first),
        own(entry * every), half(op.overlap ? op.head_dim : 0) {}
  int64_t column(int64_t i) const { return first + i >= own ? half : 0; }
  int64_t bias_row(int64_t i) const { return (first + i) % every; }
};

void pool(float* out, const CompressKv& op, const Places& at, const float* rows, int64_t stride) {
  for_lanes(0, op.head_dim, [&](int64_t d, int n_lanes) {
    const auto gate = [&](int64_t i) {
      const int64_t column = at.column(i) + d;
      return add(load_n(rows + i * stride + at.width + column, n_lanes), load_n(op.bias.f32(at.bias_row(i)) + column, n_lanes));
    };
    F largest = set1(-__builtin_inff()), sum = zero(), total = zero();
    for (int64_t i = 0; i < at.n; ++i) largest = max(largest, gate(i));
    for (int64_t i = 0; i < at.n; ++i) {
      const F weight = exp_of_nonpositive(sub(gate(i), largest));
      sum = fma(weight, load_n(rows + i * stride + at.column(i) + d, n_lanes), sum);
      total = add(total, weight);
    }
    store_n(out + d, div(sum, total), n_lanes);
  });
}

void norm(float* x, const float* weight, int n, float eps) {
  F squares = zero();
  for_lanes(0, n, [&](int64_t i, int lanes) { const F v = load_n(x + i, lanes); squares = fma(v, v, squares); });
  const F factor = set1(1.0f / ::sqrtf(reduce_add(squares) / static_cast<float>(n) + eps));
  for_lanes(0, n, [&](int64_t i, int lanes) { store_n(x + i, mul(mul(load_n(x + i, lanes), factor), load_n(weight + i, lanes)), lanes); });
}

void rotate(float* x, const CompressKv& op, const Step& step, const StepSeq& seq, float position) {
  const float* freqs = step.rope_freqs(op.rope, seq.rope_row);
  const float factor = freqs[step.limits().n_freqs];
  for (int i = 0; i < op.n_rot / 2; ++i) {
    const float cosine = ::cosf(position * freqs[i]) * factor, sine = ::sinf(position * freqs[i]) * factor;
    float& a = x[op.style == RopeStyle::half ? i : 2 * i];
    float& b = x[op.style == RopeStyle::half ? i + op.n_rot / 2 : 2 * i + 1];
    const float old = a;
    a = old * cosine - b * sine;
    b = b * cosine + old * sine;
  }
}

}  // namespace

bool fits_compress_kv(const CompressKv& op) {
  const int64_t scratch = 4 * (2 * op.bias.rows * round16(2 * op.bias.cols) + op.head_dim);
  return is_kv_format(op.inputs.planes[0].format) && is_kv_format(op.entries.planes[0].format) && scratch <= int64_t{6} << 20;
}

void compress_kv(const CompressKv& op, Lane& lane) {
  const Step& step = *lane.step;
  const auto seq_of = [&](int64_t t) -> const StepSeq& { return step.seqs().data()[step.seq_of().data()[t]]; };
  const auto [first, last] = lane.part(op.x.rows);
  const FormatId in = op.inputs.planes[0].format;
  for (int64_t t = first; t < last; ++t) write_row(kv_row(op.inputs, step, seq_of(t), step.positions().data()[t]), op.x.f32(t), in, static_cast<int>(op.x.cols));
  lane.barrier();

  const int64_t every = op.bias.rows, stride = round16(op.x.cols);
  auto* rows = reinterpret_cast<float*>(lane.own.data());
  float* entry = rows + 2 * every * stride;
  lane.share(op.x.rows, every < 16 ? every : 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t position = step.positions().data()[t];
      if ((position + 1) % every != 0) continue;
      const StepSeq& seq = seq_of(t);
      const Places places(op, position / every);
      for (int64_t i = 0; i < places.n; ++i) read_row(rows + i * stride, kv_row(op.inputs, step, seq, places.first + i), in, static_cast<int>(op.x.cols));
      pool(entry, op, places, rows, stride);
      norm(entry, op.norm.f32(), op.head_dim, op.eps);
      rotate(entry + op.head_dim - op.n_rot, op, step, seq, static_cast<float>(position + 1 - every));
      write_row(kv_row(op.entries, step, seq, position / every), entry, op.entries.planes[0].format, op.head_dim);
    }
  });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
