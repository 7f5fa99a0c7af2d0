#include "model/blocks/hyper.h"

namespace ridge {
namespace {

// What goes into a part, in the workspace's own x, which the streams have left free; returns the factors.
Tensor enter(Pass& pass, const Stream& stream, Tensor out, const HyperFactors& factors, const HyperOptions& o) {
  const Tensor normed = pass.scratch(HyperSpread::kNormed, stream.x.cols), weights = pass.scratch(HyperSpread::kFactors, factors.fn->rows);
  pass.run(AddNorm{.out = normed, .x = stream.x, .pending = {}, .weight = {}, .bias = {}, .eps = o.norm_eps});
  pass.run(Matmul{.out = {weights}, .x = normed, .w = {factors.fn}});
  pass.run(HyperEnter{.out = out, .x = stream.x, .weights = weights, .scale = factors.scale, .base = factors.base, .n = o.n, .iterations = o.iterations, .eps = o.eps});
  return weights;
}

}  // namespace

void HyperSpread::forward(Pass& pass, Stream& stream) const {
  const int64_t d_model = stream.x.cols;
  stream.x = pass.scratch(kStreams, n_ * d_model);
  for (int64_t i = 0; i < n_; i++) pass.run(Embed{.out = stream.x.slice_cols(i * d_model, d_model), .table = &model_.embed, .scale = model_.embed_scale});
}

void HyperBlock::forward(Pass& pass, Stream& stream) const {
  Workspace& w = pass.workspace();
  const Tensor in = w.x.slice_rows(0, pass.n_tokens()), normed = w.normed.slice_rows(0, pass.n_tokens()), result = w.pending.slice_rows(0, pass.n_tokens());
  for (const Part& part : parts_) {
    const Tensor weights = enter(pass, stream, in, part.factors, o_);
    pass.run(add_norm(normed, {.x = in, .pending = {}}, part.norm));
    part.module->forward(pass, result, normed);
    pass.run(HyperLeave{.x = stream.x, .y = result, .weights = weights, .n = o_.n});
  }
}

void HyperHead::forward(Pass& pass, Stream& stream) const {
  const Tensor one = pass.workspace().x.slice_rows(0, pass.n_tokens());
  enter(pass, stream, one, factors_, o_);
  stream.x = one;
}

}  // namespace ridge
