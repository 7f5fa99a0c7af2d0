// StableLM 2: Llama with layer norms and a quarter of each head rotated. By flags: biases on q, k and v, a layer norm for each head, attention and MLP side by side.
#include "model/architectures/registry.h"

namespace ridge {

void build_stablelm(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 32, .max_context = 4096, .eps = 1e-5, .eps_key = "layer_norm_eps"});
  const bool bias = c.config.flag_or("use_qkv_bias", false), parallel = c.config.flag_or("use_parallel_residual", false);
  const QkNorm qk_norm = c.config.flag_or("qk_layernorm", false) ? QkNorm::own_weights : QkNorm::none;
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(read_rope_parameters(c.config, "", 10000.0, 0.25), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    const Norm norm = c.layer_norm(p + "input_layernorm", s);
    auto attention = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = bias, .qk_norm = qk_norm, .norm_kind = NormKind::layer, .q_norm = "q_layernorm",
                                                       .k_norm = "k_layernorm"});
    auto mlp = c.gated_mlp(p + "mlp.", s, {.act = act});
    if (parallel) c.add_parallel_block({.norm = norm, .mixer = std::move(attention), .ffn = std::move(mlp)});
    else c.add_block({.before = norm, .module = std::move(attention)}, {.before = c.layer_norm(p + "post_attention_layernorm", s), .module = std::move(mlp)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.layer_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
