// Mamba-1: x, z = in(input); x through a short convolution; dt, b and c projected from it (dt through a low rank); a scan with a decay per channel and state;
// gate; out.
#pragma once
#include "model/modules/short_conv.h"

namespace ridge {

class Mamba : public Module {
 public:
  struct Parts {
    const Weight *x, *z, *dt_low, *b, *c, *dt, *out;
    Tensor x_bias, z_bias, dt_bias, out_bias;
    Conv conv;
    Tensor dt_norm, b_norm, c_norm;          // may be empty (Jamba has them)
    float eps = 0;
    Tensor rate, skip;                       // [n_state, channels], [1, channels]
    int kv = 0;
  };
  explicit Mamba(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  Parts p_;
};

struct MambaShape {
  int64_t d_inner;
  int n_state, n_taps, dt_rank;
  bool proj_bias = false, conv_bias = true, norms = false;
  float eps = 0;
};
int read_dt_rank(const Config& config, std::string_view key, int d_model);       // a number, or "auto"
std::unique_ptr<Module> make_mamba(Construction& c, const std::string& prefix, int64_t d_model, const MambaShape& shape);

}  // namespace ridge
