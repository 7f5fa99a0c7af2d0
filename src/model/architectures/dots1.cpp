// dots.llm1: Qwen 3's attention and DeepSeek-V3's mixture, after some dense layers.
#include "model/architectures/registry.h"

namespace ridge {

void build_dots1(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 32, .max_context = 2048});
  const bool bias = c.config.flag_or("attention_bias", false), windowed = read_window(c.config, 4096) > 0;
  const int first_window = c.config.integer_or("max_window_layers", 62, 0, 1 << 20), n_dense = c.config.integer_or("first_k_dense_replace", 0, 0, 1 << 20);
  const std::vector<int> windows = read_windows(c.config, s.n_layers, 4096, [&](int i) { return windowed && i >= first_window; });
  const MoeOptions moe = read_grouped_moe(c.config, false);
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = windows[static_cast<size_t>(i)], .qkv_bias = bias, .o_bias = bias,
                                                             .qk_norm = QkNorm::per_head})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = i < n_dense ? c.gated_mlp(p + "mlp.", s, {.act = moe.act}) : c.moe(p + "mlp.", s, moe)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
