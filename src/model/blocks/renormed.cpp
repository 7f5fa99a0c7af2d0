#include "model/blocks/renormed.h"

namespace ridge {

void RenormedBlock::forward(Pass& pass, Stream& stream) const {
  const Tensor pending = pass.workspace().pending.slice_rows(0, pass.n_tokens());
  for (const Part& part : parts_) {
    pass.run(add_norm(stream.x, stream, part.norm));
    part.module->forward(pass, pending, stream.x);
    if (part.stream_scale != 1.0f) pass.run(ScaleCap{.x = stream.x, .scale = part.stream_scale});
    stream.pending = pending;
    stream.pending_scale = part.part_scale;
  }
}

}  // namespace ridge
