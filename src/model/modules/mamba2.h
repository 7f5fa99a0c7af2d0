// Mamba-2: z, x B C, dt = in(input); x B C through a short convolution; a scan with x as values, B as keys, C as queries and one decay per head; norm and gate; out.
#pragma once
#include "model/modules/recurrent.h"
#include "model/modules/short_conv.h"

namespace ridge {

class Mamba2 : public Module {
 public:
  struct Parts {
    int n_heads, head_dim, n_groups, d_state;
    const Weight *z, *xbc, *dt, *out;
    Tensor z_bias, xbc_bias, dt_bias, out_bias;
    Conv conv;
    Tensor rate, skip;                       // [1, n_heads]
    GatedNorm norm;
    float dt_least = 0, dt_most = __builtin_inff();
    std::array<float, 5> scales{1, 1, 1, 1, 1};                          // on z, x, B, C, dt as projected
    float out_scale = 1.0f;
    int kv = 0;
  };
  explicit Mamba2(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  Parts p_;
};

struct Mamba2Shape {
  int n_heads, head_dim, n_groups, d_state, n_taps;
  bool proj_bias = false, conv_bias = true, out_bias = false;
  float eps = 1e-5f;
  bool norm = true, norm_before_gate = false;
  int norm_groups = 1;
  float dt_least = 0, dt_most = __builtin_inff();
  std::array<float, 5> scales{1, 1, 1, 1, 1};
  float in_scale = 1.0f, out_scale = 1.0f;
};

// mamba_n_heads, mamba_d_head, mamba_n_groups, mamba_d_state, mamba_d_conv and so on: the names of Bamba, Falcon-H1 and Granite.
Mamba2Shape read_mamba2_shape(const Config& config, int d_inner);
// [least, most] of dt under time_step_limit; Infinity may be spelled as a float in an object.
void read_dt_limits(const Config& config, float& least, float& most);

std::unique_ptr<Module> make_mamba2(Construction& c, const std::string& prefix, int64_t d_model, const Mamba2Shape& shape);

}  // namespace ridge
