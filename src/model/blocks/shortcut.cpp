#include "model/blocks/shortcut.h"

namespace ridge {

void ShortcutBlock::forward(Pass& pass, Stream& stream) const {
  Workspace& w = pass.workspace();
  const Tensor normed = w.normed.slice_rows(0, pass.n_tokens()), pending = w.pending.slice_rows(0, pass.n_tokens());
  const Tensor mixed = pass.scratch(kMixture, stream.x.cols);
  for (const Half& half : halves_) {
    pass.run(add_norm(normed, stream, half.attention_norm));
    half.attention->forward(pass, pending, normed);
    stream.pending = pending;
    stream.pending_scale = 1.0f;
    pass.run(add_norm(normed, stream, half.ffn_norm));
    if (&half == &halves_[0]) mixture_->forward(pass, mixed, normed);
    half.ffn->forward(pass, pending, normed);
  }
  pass.run(AddScaled{.x = pending, .y = mixed});
}

}  // namespace ridge
