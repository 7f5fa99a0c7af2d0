// GLM-4 (0414): norms before and after each part, half of each head rotated in neighbouring pairs, biases on q, k and v, a fused gate and up.
#include "model/architectures/registry.h"

namespace ridge {

void build_glm4(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 2, .head_dim = 128, .max_context = 131072, .eps = 1.5625e-7});
  const bool bias = c.config.flag_or("attention_bias", true);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(read_rope_parameters(c.config, "", 10000.0, 0.5), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .after = c.rms_norm(p + "post_self_attn_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .style = RopeStyle::interleaved, .qkv_bias = bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .after = c.rms_norm(p + "post_mlp_layernorm", s),
                 .module = c.gated_mlp(p + "mlp.", s, {.act = act, .fused_gate_up = true})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
