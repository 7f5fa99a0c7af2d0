// SmolLM3: Llama in which some layers (every fourth, or where no_rope_layers has a 0) do not rotate; those may see a window.
#include "model/architectures/registry.h"

namespace ridge {

void build_smollm3(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 4, .max_context = 32768});
  const bool attention_bias = c.config.flag_or("attention_bias", false), mlp_bias = c.config.flag_or("mlp_bias", false);
  const int interval = c.config.integer_or("no_rope_layer_interval", 4, 1, 1 << 20);
  std::vector<double> rotates;
  if (c.config.has("no_rope_layers")) rotates = c.config.numbers("no_rope_layers", s.n_layers, 0, 1);
  else for (int i = 0; i < s.n_layers; i++) rotates.push_back((i + 1) % interval != 0);
  const bool use_window = c.config.flag_or("use_sliding_window", false);
  const std::vector<int> windows = use_window ? read_windows(c.config, s.n_layers, 0, [&](int i) { return rotates[i] == 0 && c.config.has("sliding_window"); })
                                              : std::vector<int>(s.n_layers, 0);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s, 2000000.0);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rotates[i] != 0 ? rope : -1, .window = windows[i], .qkv_bias = attention_bias, .o_bias = attention_bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act, .bias = mlp_bias})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
