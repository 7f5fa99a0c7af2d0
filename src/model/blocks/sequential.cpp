#include "model/blocks/sequential.h"

namespace ridge {

AddNorm add_norm(Tensor out, const Stream& stream, const Norm& norm) {
  return {.out = out, .x = stream.x, .pending = stream.pending, .pending_scale = stream.pending_scale, .weight = norm.weight, .bias = norm.bias, .eps = norm.eps,
          .weight_offset = norm.offset, .kind = norm.kind};
}

void SequentialBlock::run_part(const Part& part, Pass& pass, Stream& stream) const {
  Workspace& w = pass.workspace();
  const int64_t d_model = stream.x.cols;
  const Tensor normed = w.normed.slice_rows(0, pass.n_tokens()), pending = w.pending.slice_rows(0, pass.n_tokens());
  // Without a norm before the part there is still an addition to do; the norm that comes with it is not used (eps 1 keeps it finite).
  if (part.before || stream.pending) pass.run(add_norm(normed, stream, part.before ? part.before : Norm{.eps = 1.0f}));
  const Tensor result = part.after ? pass.scratch(2, d_model) : pending;
  part.module->forward(pass, result, part.before ? normed : stream.x);
  if (part.after) pass.run(add_norm(pending, {.x = result}, part.after));
  stream.pending = pending;
  stream.pending_scale = residual_scale_;
}

void SequentialBlock::forward(Pass& pass, Stream& stream) const {
  for (const Part& part : parts_) {
    if (&part == &parts_.back() && part.module->is_row_wise()) pass.narrow(stream);
    if (pass.n_tokens() == 0) return;
    run_part(part, pass, stream);
  }
  if (output_scale_ == 1.0f) return;
  pass.run(AddScaled{.x = stream.x, .y = stream.pending, .scale = stream.pending_scale});
  pass.run(ScaleCap{.x = stream.x, .scale = output_scale_});
  stream.pending = {};
}

}  // namespace ridge
