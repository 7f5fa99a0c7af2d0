// Grouped-query attention over KV pages: project, norm (optional), rotate and store, attend, project back.
#pragma once
#include "model/model.h"

namespace ridge {

class Attention : public Module {
 public:
  struct Parts {
    int n_heads, n_kv_heads, head_dim;
    const Weight *q, *k, *v, *o;
    Tensor q_bias, k_bias, v_bias, o_bias;   // may be empty
    Tensor q_norm, k_norm;                   // may be empty; [1, head_dim]: each head on its own; [1, all heads]: the row as a whole
    float norm_eps = 0, norm_offset = 0;
    int rope = -1, n_rot = 0;                // rope -1: no rotation
    int kv = 0;                              // handle
    float scale = 1;
    int window = 0;
    float softcap = 0;
  };
  explicit Attention(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  Parts p_;
};

}  // namespace ridge
