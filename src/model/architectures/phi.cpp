// Phi-1 to Phi-2: attention and a plain MLP side by side from one layer norm, biases everywhere (the head too), half of each head rotated.
#include "model/architectures/registry.h"

namespace ridge {

void build_phi(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 2048, .eps = 1e-5, .eps_key = "layer_norm_eps"});
  const QkNorm qk_norm = c.config.flag_or("qk_layernorm", false) ? QkNorm::per_head : QkNorm::none;
  const ActKind act = read_activation(c.config, "hidden_act", "gelu_new");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(read_rope_parameters(c.config, "", 10000.0, 0.5), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_parallel_block({.norm = c.layer_norm(p + "input_layernorm", s),
                          .mixer = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = true, .o_bias = true, .qk_norm = qk_norm, .norm_kind = NormKind::layer,
                                                                     .norm_bias = true, .output = "dense", .q_norm = "q_layernorm", .k_norm = "k_layernorm"}),
                          .ffn = c.plain_mlp(p + "mlp.", s, {.act = act, .bias = true, .in = "fc1", .out = "fc2"})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.layer_norm("model.final_layernorm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
  c.model.head_bias = c.weights.vector("head", "lm_head.bias", s.n_vocab);
}

}  // namespace ridge
