// StarCoder2: rotary attention with layer norms, biases everywhere and a plain MLP; a window where the config has one.
#include "model/architectures/registry.h"

namespace ridge {

void build_starcoder2(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 2, .max_context = 4096, .eps = 1e-5, .eps_key = "norm_epsilon"});
  const bool bias = c.config.flag_or("use_bias", true);
  const int window = read_window(c.config, 0);
  const ActKind act = read_activation(c.config, "hidden_act", "gelu_pytorch_tanh");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.layer_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = window, .qkv_bias = bias, .o_bias = bias})},
                {.before = c.layer_norm(p + "post_attention_layernorm", s), .module = c.plain_mlp(p + "mlp.", s, {.act = act, .bias = bias})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.layer_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
