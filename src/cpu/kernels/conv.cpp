// Short causal convolutions. Inputs of this step are read where they are, earlier ones from the pages, [positions][channels] f32: the same numbers either way,
// added in the order of positions, so what a token gets does not depend on how many come at once.
#include "backend/step.h"
#include "cpu/kernels/kernels.h"
#include "cpu/simd/math.h"

namespace ridge::cpu::RIDGE_ISA_NS {

void short_conv(const ShortConv& op, Lane& lane) {
  constexpr int kMostTaps = 16;
  const int n_taps = static_cast<int>(op.weight.rows);
  const float* bias = op.bias ? op.bias.f32() : nullptr;
  for_pieces(lane, op.x.rows, op.x.cols, [&](int64_t t, int64_t first, int64_t last) {
    const StepSeq& seq = lane.step->seqs().data()[lane.step->seq_of().data()[t]];
    const int32_t position = lane.step->positions().data()[t], first_position = position - static_cast<int32_t>(t - seq.first_row);
    const auto stored = [&](int32_t p) {
      const int32_t page = lane.step->pages()[seq.first_page[op.kv.group] + p / op.kv.page_size];
      return reinterpret_cast<float*>(op.kv.plane(0, page)) + p % op.kv.page_size * op.x.cols;
    };
    const float *inputs[kMostTaps], *weights[kMostTaps];
    int n = 0;
    for (int i = 0; i < n_taps; ++i) {
      const int32_t p = position - (n_taps - 1) + i;
      if (p < 0) continue;
      weights[n] = op.weight.f32(i);
      inputs[n++] = p >= first_position ? op.x.f32(seq.first_row + p - first_position) : stored(p);
    }
    float *out = op.out.f32(t), *kept = stored(position);
    for_lanes(first, last, [&](int64_t c, int width) {
      F sum = bias ? load_n(bias + c, width) : zero();
      for (int i = 0; i < n; ++i) sum = fma(load_n(weights[i] + c, width), load_n(inputs[i] + c, width), sum);
      store_n(out + c, op.silu ? silu(sum) : sum, width);
      store_n(kept + c, load_n(op.x.f32(t) + c, width), width);
    });
  });
}

bool fits_conv(const ShortConv& op) { return op.weight.rows <= 16 && op.kv.planes[0].format == FormatId::f32; }

}  // namespace ridge::cpu::RIDGE_ISA_NS
