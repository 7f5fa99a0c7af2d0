// Arcee (AFM): Llama with a plain MLP, up and down, and squared relu between them.
#include "model/architectures/registry.h"

namespace ridge {

void build_arcee(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 4096, .eps = 1e-5});
  const bool attention_bias = c.config.flag_or("attention_bias", false);
  const MlpOptions mlp{.act = read_activation(c.config, "hidden_act", "relu2"), .bias = c.config.flag_or("mlp_bias", false), .in = "up_proj", .out = "down_proj"};
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = attention_bias, .o_bias = attention_bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.plain_mlp(p + "mlp.", s, mlp)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
