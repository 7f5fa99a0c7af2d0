// OLMo 3: OLMo 2 where three layers of four see a window; a stretched rope belongs to the full layers alone.
#include "model/architectures/registry.h"

namespace ridge {

void build_olmo3(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 2048, .eps = 1e-5});
  const bool bias = c.config.flag_or("attention_bias", false);
  const std::vector<int> windows = read_windows(c.config, s.n_layers, 4096, [](int i) { return (i + 1) % 4 != 0; });
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const Json full = read_rope_parameters(c.config, "full_attention", 500000.0);
  const int full_rope = c.add_rope(full, s);
  const int window_rope = c.add_rope(read_rope_parameters(c.config, "sliding_attention", Config(full, "rope_parameters").number("rope_theta", 0, 1e12)), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.after = c.rms_norm(p + "post_attention_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = windows[i] ? window_rope : full_rope, .window = windows[i], .qkv_bias = bias, .o_bias = bias,
                                                             .qk_norm = QkNorm::full_width})},
                {.after = c.rms_norm(p + "post_feedforward_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
