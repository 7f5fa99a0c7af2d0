// Grouped-query attention over KV pages: project, norm (optional), rotate and store, attend, gate (optional), project back. A layer that reads the KV of another
// (the same handle) has no projections of its own for k and v.
#pragma once
#include "model/model.h"

namespace ridge {

// A norm on the heads of q, k or v.
struct HeadNormPart {
  bool wanted = false;
  bool whole_row = false;                    // one norm over all heads instead of one per head
  Tensor weight, bias;                       // [1, head_dim] or [1, all heads]; may be empty
  float eps = 0, offset = 0;
  NormKind kind = NormKind::rms;
};

class Attention : public Module {
 public:
  struct Parts {
    int n_heads, n_kv_heads, head_dim, v_dim;
    const Weight *q, *k, *v, *o;             // k null: the KV of another layer; v null: values are k as projected, before norm and rotation
    Tensor q_bias, k_bias, v_bias, o_bias;   // may be empty
    const Weight* gate = nullptr;            // what was seen is multiplied by sigmoid(gate x): [n_heads * v_dim] or one number per head; may be null
    Tensor gate_bias{};
    HeadNormPart q_norm{}, k_norm{}, v_norm{};
    bool norm_after_rope = false;            // of q and k
    int rope = -1, n_rot = 0;                // rope -1: no rotation
    int rot_first = 0;
    RopeStyle style = RopeStyle::half;
    int kv = 0;                              // handle
    float scale = 1;
    int window = 0, chunk = 0;
    float softcap = 0, value_scale = 1;
    Tensor sinks{};                          // [1, n_heads]; may be empty
    float temperature = 0;                   // of ScaleByPosition on q; 0: none
    int temperature_floor = 1, temperature_offset = 0;
  };
  explicit Attention(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  Parts p_;
};

}  // namespace ridge
