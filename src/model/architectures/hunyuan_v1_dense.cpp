// Hunyuan (dense): Llama with norms on the heads of q and k after their rotation. A `dynamic` rope with an alpha is not dynamic: alpha stretches the base once.
#include <cmath>

#include "model/architectures/registry.h"

namespace ridge {

void build_hunyuan_v1_dense(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 2048, .eps = 1e-5});
  const bool bias = c.config.flag_or("attention_bias", false);
  c.config.refuse_unless("use_qk_norm", true);
  c.config.refuse_unless("use_cla", false);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  Json parameters = read_rope_parameters(c.config, "", 10000.0);
  const Config given(parameters, c.config.where() + ", rope_parameters");
  const double alpha = given.number_or("alpha", 0, 0, 1e9), d = s.head_dim;
  if (alpha > 0 && given.text("rope_type") == "dynamic") {
    if (s.head_dim <= 2) c.config.refuse("head_dim", "a rope with an alpha needs heads of more than 2");
    parameters["rope_theta"] = given.number("rope_theta", 1e-3, 1e12) * std::pow(alpha, d / (d - 2));
    parameters["rope_type"] = "default";
  }
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(parameters, s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = bias, .o_bias = bias, .qk_norm = QkNorm::per_head, .norm_after_rope = true,
                                                             .q_norm = "query_layernorm", .k_norm = "key_layernorm"})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
