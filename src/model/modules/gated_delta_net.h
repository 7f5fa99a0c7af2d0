// Gated DeltaNet (Qwen3-Next, OLMo Hybrid) and Kimi's delta attention: q, k, v through a short convolution, q and k to unit length, a scan by the delta rule, a norm
// per head with an output gate, a projection out. The decay is a number per head, or per dimension of k (Kimi, which projects it and the gate through a low rank).
#pragma once
#include "model/modules/recurrent.h"
#include "model/modules/short_conv.h"

namespace ridge {

class GatedDeltaNet : public Module {
 public:
  struct Parts {
    int n_heads, n_k_heads, dk, dv;
    std::array<const Weight*, 3> qkv{};      // or one that stacks the three
    // Gate and decay come from the input, or through low ranks.
    const Weight *gate_low = nullptr, *gate = nullptr, *decay_low = nullptr, *decay = nullptr, *beta = nullptr, *out = nullptr;
    Tensor dt_bias{}, rate{};                // [1, n_heads] or [1, n_heads * dk]; [1, n_heads]
    Conv conv{};
    GatedNorm norm{};
    float beta_scale = 1.0f;
    int kv = 0;
  };
  explicit GatedDeltaNet(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  Parts p_;
};

struct DeltaShape {
  int n_heads = 32, n_k_heads = 16, dk = 128, dv = 128, n_taps = 4;
  int n_decays = 1;                          // a head
  float norm_eps = 1e-6f, beta_scale = 1.0f;
  ActKind gate_act = ActKind::silu;
};
// linear_num_value_heads, linear_num_key_heads, linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim; what is absent there is as in `shape`
// (by default Qwen3-Next's).
DeltaShape read_delta_shape(const Config& config, DeltaShape shape = {});

// How a family names and cuts the projections of the input.
enum class DeltaProjections {
  interleaved,                               // in_proj_qkvz and in_proj_ba by key head (Qwen3-Next)
  stacked,                                   // in_proj_qkv, in_proj_z, in_proj_b, in_proj_a (Qwen3.5)
  separate,                                  // q_proj, k_proj, v_proj, g_proj, a_proj, b_proj (OLMo Hybrid)
  low_rank,                                  // q_proj, k_proj, v_proj, g_a_proj and g_b_proj, f_a_proj and f_b_proj, b_proj (Kimi)
};
std::unique_ptr<Module> make_gated_delta_net(Construction& c, const std::string& prefix, int64_t d_model, const DeltaShape& shape, DeltaProjections projections);

}  // namespace ridge
