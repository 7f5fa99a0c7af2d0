// The ops with a recurrent state. `ref` keeps the entries of a plane one after the other, [positions][n_heads * head_dim] f32, and replays: the state before a
// step's first token is made from the page's checkpoint and the entries since, by the same additions in the same order as if the tokens came one at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "ref/ref_ops.h"

namespace ridge::ref {
namespace {

// Entry of a plane for one position of a sequence; null where the page was given back.
float* entry(const KvRef& kv, int plane, const Step& step, const StepSeq& seq, int64_t position) {
  const int32_t page = step.pages()[seq.first_page[kv.group] + position / kv.page_size];
  const KvPlane& p = kv.planes[static_cast<size_t>(plane)];
  return page < 0 ? nullptr : reinterpret_cast<float*>(kv.plane(plane, page) + position % kv.page_size / p.every * entry_bytes(p));
}

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// state = what it is before `position`, whose page gets its checkpoint when it begins there. advance(state, position) adds one entry.
template <class Advance>
void restore(std::vector<float>& state, const KvRef& kv, const Step& step, const StepSeq& seq, int64_t position, Advance&& advance) {
  const int64_t page = kv.planes[0].every;
  std::fill(state.begin(), state.end(), 0.0f);
  if (position == 0) return;
  const bool begins = position % page == 0 && entry(kv, 0, step, seq, position - 1) != nullptr;
  const int64_t first = begins ? position - page : position - position % page;
  if (first > 0) std::copy_n(entry(kv, 0, step, seq, first), state.size(), state.begin());
  for (int64_t p = first; p < position; p++) advance(state, p);
}

}  // namespace

void run(const ShortConv& op, const Step& step) {
  const int64_t n_taps = op.weight.rows;
  for (int64_t t = 0; t < op.x.rows; t++) {
    const StepSeq& seq = step.seqs()[step.seq_of()[t]];
    const int64_t position = step.positions()[t];
    std::copy_n(op.x.f32(t), op.x.cols, entry(op.kv, 0, step, seq, position));
    for (int64_t c = 0; c < op.x.cols; c++) {
      float sum = op.bias ? op.bias.f32()[c] : 0.0f;
      for (int64_t i = std::max<int64_t>(0, n_taps - 1 - position); i < n_taps; i++)
        sum += op.weight.f32(i)[c] * entry(op.kv, 0, step, seq, position - (n_taps - 1) + i)[c];
      op.out.f32(t)[c] = op.silu ? sum / (1.0f + std::exp(-sum)) : sum;
    }
  }
}

void run(const LinearScan& op, const Step& step) {
  const int64_t dk = op.dk, dv = op.dv, group = op.n_heads / op.n_k_heads, n_decays = op.kv.planes[3].head_dim;
  std::vector<float> state(static_cast<size_t>(op.n_heads * dk * dv));
  for (const StepSeq& seq : step.seqs()) {
    // Decays every head's state by the entry at p, and writes k u^T once u is there.
    const auto decay = [&](std::vector<float>& s, int64_t p) {
      for (int64_t h = 0; h < op.n_heads; h++)
        for (int64_t d = 0; d < dk; d++) {
          const int64_t i = h * n_decays + d % n_decays;
          const float factor = std::exp(entry(op.kv, 3, step, seq, p)[i] - (p % 64 == 0 ? 0.0f : entry(op.kv, 3, step, seq, p - 1)[i]));
          for (int64_t e = 0; e < dv; e++) s[static_cast<size_t>((h * dk + d) * dv + e)] *= factor;
        }
    };
    const auto write = [&](std::vector<float>& s, int64_t p) {
      for (int64_t h = 0; h < op.n_heads; h++)
        for (int64_t d = 0; d < dk; d++)
          for (int64_t e = 0; e < dv; e++)
            s[static_cast<size_t>((h * dk + d) * dv + e)] += entry(op.kv, 1, step, seq, p)[h / group * dk + d] * entry(op.kv, 2, step, seq, p)[h * dv + e];
    };
    for (int64_t t = seq.first_row; t < seq.first_row + seq.n_rows; t++) {
      const int64_t position = step.positions()[t];
      if (t == seq.first_row)
        restore(state, op.kv, step, seq, position, [&](std::vector<float>& s, int64_t p) {
          decay(s, p);
          write(s, p);
        });
      if (position % 64 == 0) std::copy(state.begin(), state.end(), entry(op.kv, 0, step, seq, position));
      float *keys = entry(op.kv, 1, step, seq, position), *writes = entry(op.kv, 2, step, seq, position), *sums = entry(op.kv, 3, step, seq, position);
      std::copy_n(op.k.f32(t), op.n_k_heads * dk, keys);
      const auto dt = [&](int64_t i) { return op.gate ? std::clamp(softplus(op.gate.f32(t)[i]), op.dt_least, op.dt_most) : 1.0f; };
      for (int64_t i = 0; i < op.n_heads * n_decays; i++)
        sums[i] = (position % 64 == 0 ? 0.0f : entry(op.kv, 3, step, seq, position - 1)[i]) + op.rate.f32()[i / n_decays] * dt(i);
      decay(state, position);
      for (int64_t h = 0; h < op.n_heads; h++)
        for (int64_t e = 0; e < dv; e++) {
          const float v = op.v.f32(t)[h * dv + e];
          float held = 0;
          for (int64_t d = 0; d < dk; d++) held += keys[h / group * dk + d] * state[static_cast<size_t>((h * dk + d) * dv + e)];
          if (op.write == ScanWrite::delta) writes[h * dv + e] = op.beta_scale / (1.0f + std::exp(-op.beta.f32(t)[h])) * (v - held);
          else writes[h * dv + e] = op.write == ScanWrite::stepped ? dt(h) * v : v;
        }
      write(state, position);
      for (int64_t h = 0; h < op.n_heads; h++)
        for (int64_t e = 0; e < dv; e++) {
          float sum = 0;
          for (int64_t d = 0; d < dk; d++) sum += op.q.f32(t)[h / group * dk + d] * state[static_cast<size_t>((h * dk + d) * dv + e)];
          op.out.f32(t)[h * dv + e] = op.q_scale * sum + (op.skip ? op.skip.f32()[h] * op.v.f32(t)[h * dv + e] : 0.0f);
        }
    }
  }
}

void run(const SelectiveScan& op, const Step& step) {
  const int64_t n_channels = op.x.cols, n_state = op.rate.rows;
  std::vector<float> state(static_cast<size_t>(n_state * n_channels));
  for (const StepSeq& seq : step.seqs()) {
    const auto advance = [&](std::vector<float>& s, int64_t p) {
      const float *x = entry(op.kv, 2, step, seq, p), *dt = x + n_channels, *b = entry(op.kv, 3, step, seq, p);
      for (int64_t n = 0; n < n_state; n++)
        for (int64_t c = 0; c < n_channels; c++) {
          float& h = s[static_cast<size_t>(n * n_channels + c)];
          h = std::exp(dt[c] * op.rate.f32(n)[c]) * h + dt[c] * x[c] * b[n];
        }
    };
    for (int64_t t = seq.first_row; t < seq.first_row + seq.n_rows; t++) {
      const int64_t position = step.positions()[t];
      if (t == seq.first_row) restore(state, op.kv, step, seq, position, advance);
      if (position % 64 == 0) std::copy(state.begin(), state.end(), entry(op.kv, 0, step, seq, position));
      float *x = entry(op.kv, 2, step, seq, position), *dt = x + n_channels;
      std::copy_n(op.x.f32(t), n_channels, x);
      for (int64_t c = 0; c < n_channels; c++) dt[c] = softplus(op.gate.f32(t)[c]);
      std::copy_n(op.b.f32(t), n_state, entry(op.kv, 3, step, seq, position));
      advance(state, position);
      for (int64_t c = 0; c < n_channels; c++) {
        float sum = 0;
        for (int64_t n = 0; n < n_state; n++) sum += op.c.f32(t)[n] * state[static_cast<size_t>(n * n_channels + c)];
        op.out.f32(t)[c] = sum + op.skip.f32()[c] * x[c];
      }
    }
  }
}

}  // namespace ridge::ref
