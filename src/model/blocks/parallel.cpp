#include "model/blocks/parallel.h"

namespace ridge {

void ParallelBlock::forward(Pass& pass, Stream& stream) const {
  Workspace& w = pass.workspace();
  const Tensor normed = w.normed.slice_rows(0, pass.n_tokens()), pending = w.pending.slice_rows(0, pass.n_tokens()), second = pass.scratch(13, stream.x.cols);
  pass.run(add_norm(normed, stream, p_.norm));
  p_.mixer->forward(pass, pending, normed);
  if (p_.ffn_norm) pass.run(add_norm(normed, {.x = stream.x}, p_.ffn_norm));
  p_.ffn->forward(pass, second, normed);
  pass.run(AddScaled{.x = pending, .y = second});
  stream.pending = pending;
  stream.pending_scale = 1.0f;
}

}  // namespace ridge
