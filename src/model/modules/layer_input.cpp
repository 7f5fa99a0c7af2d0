#include "model/modules/layer_input.h"

#include <cmath>

namespace ridge {

void LayerInputsBlock::forward(Pass& pass, Stream& stream) const {
  const int64_t cols = p_.table.cols;
  const auto width = static_cast<float>(cols / p_.n_layers), d_model = static_cast<float>(stream.x.cols), half = std::sqrt(0.5f);
  const Tensor inputs = pass.scratch(kLayerInputs, cols), projected = pass.scratch(kLayerProjection, cols);
  pass.run(Embed{.out = inputs, .table = &p_.table, .scale = std::sqrt(width) * half});
  pass.run(Matmul{.out = {projected}, .x = stream.x, .w = {p_.projection}});
  // A norm of y / sqrt(d) is the norm of y with an eps d times as large.
  pass.run(HeadNorm{.x = projected, .weight = p_.norm, .n_heads = p_.n_layers, .eps = p_.eps * d_model});
  pass.run(AddScaled{.x = inputs, .y = projected, .scale = half});
}

void LayerInput::forward(Pass& pass, Tensor out, Tensor x) const {
  const int64_t width = p_.gate->rows;
  const Tensor gate = pass.scratch(0, width);
  pass.run(Matmul{.out = {gate}, .x = x, .w = {p_.gate}});
  pass.run(Activate{.out = gate, .gate = gate, .up = pass.scratch(kLayerInputs, width * p_.n_layers).slice_cols(p_.layer * width, width), .kind = p_.act});
  pass.run(Matmul{.out = {out}, .x = gate, .w = {p_.projection}});
}

}  // namespace ridge
