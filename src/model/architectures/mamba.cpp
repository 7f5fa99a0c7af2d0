// Mamba: layers that are one Mamba-1 mixer each; no attention, no feed-forward, no positions.
#include "model/architectures/registry.h"
#include "model/modules/mamba.h"
#include "model/modules/recurrent.h"

namespace ridge {

void build_mamba(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_recurrent_shape(config);
  config.refuse_unless("hidden_act", "silu");
  const MambaShape mamba{.d_inner = static_cast<int64_t>(config.number_or("expand", 2, 0.01, 64) * s.d_model), .n_state = config.integer_or("state_size", 16,
                                                                                                                                            1, 1 << 12),
                         .n_taps = config.integer_or("conv_kernel", 4, 1, 16), .dt_rank = read_dt_rank(config, "time_step_rank", s.d_model),
                         .proj_bias = config.flag_or("use_bias", false), .conv_bias = config.flag_or("use_conv_bias", true)};
  const std::string embedding = c.weights.has("backbone.embedding.weight") ? "backbone.embedding.weight" : "backbone.embeddings.weight";
  c.embed(embedding, s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i, "backbone.layers.");
    c.add_layer({.before = c.rms_norm(p + "norm", s), .module = make_mamba(c, p + "mixer.", s.d_model, mamba)});
  }
  c.weights.refuse_unused("backbone.layers.", s.n_layers);
  c.finish(c.rms_norm("backbone.norm_f", s), embedding, "lm_head.weight", s, true);
}

}  // namespace ridge
