// Lightning attention (MiniMax-01): linear attention over activated q, k, v with a fixed decay per head; a norm over all heads, an output gate, a projection out.
#pragma once
#include "model/modules/recurrent.h"

namespace ridge {

class Lightning : public Module {
 public:
  struct Parts {
    int n_heads, head_dim;
    const Weight *q, *k, *v, *gate, *out;
    Tensor rate;                             // [1, n_heads]
    ActKind act;
    GatedNorm norm;
    int kv = 0;
  };
  explicit Lightning(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  Parts p_;
};

std::unique_ptr<Module> make_lightning(Construction& c, const std::string& prefix, const Shape& shape, int layer, ActKind act);

}  // namespace ridge
