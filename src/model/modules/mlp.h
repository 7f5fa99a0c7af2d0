// The feed-forward part: down(act(gate x) * up x), or down(act(gate x)) when there is no `up`.
#pragma once
#include "model/model.h"

namespace ridge {

class Mlp : public Module {
 public:
  struct Parts {
    const Weight *gate, *up, *down;          // up may be null
    Tensor gate_bias, up_bias, down_bias;    // may be empty
    ActKind act = ActKind::silu;
    float gate_scale = 1.0f, out_scale = 1.0f;     // on the gate before it is activated, and on what comes out (Falcon-H1)
    float limit = 0;                         // of Activate
  };
  explicit Mlp(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;
  bool is_row_wise() const override { return true; }

 private:
  Parts p_;
};

}  // namespace ridge
