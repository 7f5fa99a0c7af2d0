// Seed-OSS: Llama with biases on q, k and v (and elsewhere by flags), and heads of 128 whatever the width.
#include "model/architectures/registry.h"

namespace ridge {

void build_seed_oss(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 8, .head_dim = 128, .max_context = 524288});
  const bool qkv_bias = c.config.flag_or("attention_bias", true), o_bias = c.config.flag_or("attention_out_bias", false), mlp_bias = c.config.flag_or("mlp_bias", false);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = qkv_bias, .o_bias = o_bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act, .bias = mlp_bias})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
