// Mamba-2: layers that are one Mamba-2 mixer each; no attention, no feed-forward, no positions.
#include "base/error.h"
#include "model/architectures/registry.h"
#include "model/modules/mamba2.h"
#include "model/modules/recurrent.h"

namespace ridge {

void build_mamba2(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_recurrent_shape(config);
  config.refuse_unless("hidden_act", "silu");
  Mamba2Shape mamba{.n_heads = config.integer_or("num_heads", 128, 1, 1 << 16), .head_dim = config.integer_or("head_dim", 64, 1, 4096),
                    .n_groups = config.integer_or("n_groups", 8, 1, 1 << 16), .d_state = config.integer_or("state_size", 128, 1, 4096),
                    .n_taps = config.integer_or("conv_kernel", 4, 1, 16), .proj_bias = config.flag_or("use_bias", false),
                        .conv_bias = config.flag_or("use_conv_bias", true),
                    .out_bias = config.flag_or("use_bias", false), .eps = s.eps};
  read_dt_limits(config, mamba.dt_least, mamba.dt_most);
  const double d_inner = config.number_or("expand", 2, 0.01, 64) * s.d_model;
  if (d_inner != mamba.n_heads * mamba.head_dim) config.refuse("num_heads", fmt::format("heads of {} do not make up expand * hidden_size, {}",
                                                                                        mamba.head_dim, d_inner));
  if (mamba.n_heads % mamba.n_groups != 0) config.refuse("n_groups", fmt::format("it must divide num_heads, {}", mamba.n_heads));
  const std::string embedding = c.weights.has("backbone.embedding.weight") ? "backbone.embedding.weight" : "backbone.embeddings.weight";
  c.embed(embedding, s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i, "backbone.layers.");
    c.add_layer({.before = c.rms_norm(p + "norm", s), .module = make_mamba2(c, p + "mixer.", s.d_model, mamba)});
  }
  c.weights.refuse_unused("backbone.layers.", s.n_layers);
  c.finish(c.rms_norm("backbone.norm_f", s), embedding, "lm_head.weight", s, false);
}

}  // namespace ridge
