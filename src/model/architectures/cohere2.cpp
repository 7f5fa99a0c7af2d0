// Command R7B (Cohere 2): attention and MLP side by side from one layer norm without bias; three layers of four see a window and rotate neighbouring pairs, the
// fourth sees everything and does not rotate. Logits are scaled.
#include "model/architectures/registry.h"

namespace ridge {

void build_cohere2(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 8192, .eps = 1e-5, .eps_key = "layer_norm_eps"});
  const bool bias = c.config.flag_or("attention_bias", false);
  const int pattern = c.config.integer_or("sliding_window_pattern", 4, 1, 1 << 20);
  const std::vector<int> windows = read_windows(c.config, s.n_layers, 4096, [&](int i) { return (i + 1) % pattern != 0; });
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.config.refuse_unless("use_qk_norm", false);
  c.config.refuse_unless("use_parallel_block", true);
  c.model.logit_scale = static_cast<float>(c.config.number_or("logit_scale", 0.0625, -1e6, 1e6));
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_parallel_block({.norm = c.layer_norm(p + "input_layernorm", s, false),
                          .mixer = c.attention(p + "self_attn.", s, {.rope = windows[i] > 0 ? rope : -1, .style = RopeStyle::interleaved, .window = windows[i],
                                                                     .qkv_bias = bias, .o_bias = bias}),
                          .ffn = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.layer_norm("model.norm", s, false), "model.embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
