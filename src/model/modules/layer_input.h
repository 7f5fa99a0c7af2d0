// Inputs that every layer gets of its own (Gemma 3n, Gemma 4): a token's row of a second table plus a projection of its embedding, made once before the first
// layer and kept in scratch buffer 14 as [tokens, n_layers * width]. Each layer then adds projection(act(gate x) * its slice).
//   inputs = (table[token] * sqrt(width) + norm(projection(x) / sqrt(d_model))) / sqrt(2)
#pragma once
#include "model/model.h"

namespace ridge {

inline constexpr int kLayerInputs = 14, kLayerProjection = 15;       // scratch buffers

// Makes the inputs; leaves the stream alone.
class LayerInputsBlock : public Block {
 public:
  struct Parts {
    Weight table;                            // [n_vocab, n_layers * width]
    const Weight* projection;                // [n_layers * width, d_model]
    Tensor norm;                             // [1, width]
    float eps;
    int n_layers;
  };
  explicit LayerInputsBlock(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Stream& stream) const override;

 private:
  Parts p_;
};

class LayerInput : public Module {
 public:
  struct Parts {
    int layer, n_layers;
    const Weight *gate, *projection;         // [width, d_model], [d_model, width]
    ActKind act;
  };
  explicit LayerInput(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  Parts p_;
};

}  // namespace ridge
