// Qwen 3 (dense): Llama with a norm on each head of q and k, and heads of 128 whatever the width.
#include "model/architectures/registry.h"

namespace ridge {

void build_qwen3(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 32, .head_dim = 128, .max_context = 32768});
  const bool use_window = c.config.flag_or("use_sliding_window", false), bias = c.config.flag_or("attention_bias", false);
  const int first_window = c.config.integer_or("max_window_layers", 28, 0, 1 << 20);
  const std::vector<int> windows = use_window ? read_windows(c.config, s.n_layers, 4096, [&](int i) { return i >= first_window; }) : std::vector<int>(s.n_layers, 0);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = windows[i], .qkv_bias = bias, .o_bias = bias, .qk_norm = QkNorm::per_head})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
