// Qwen 2 and 2.5: Llama with biases on q, k and v. Layers from max_window_layers on may see a window.
#include "model/architectures/registry.h"

namespace ridge {

void build_qwen2(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 32, .max_context = 32768});
  const bool use_window = c.config.flag_or("use_sliding_window", false);
  const int first_window = c.config.integer_or("max_window_layers", 28, 0, 1 << 20);
  const std::vector<int> windows = use_window ? read_windows(c.config, s.n_layers, 4096, [&](int i) { return i >= first_window; }) : std::vector<int>(s.n_layers, 0);
  c.config.refuse_unless("use_mrope", false);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = windows[i], .qkv_bias = true})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
