// MiMo-V2-Flash: full layers and layers with a window, which have twice the KV heads, sinks and a rope of their own; values narrower than keys and scaled; a third
// of each head rotates; DeepSeek-V3's mixture without shared experts.
#include "model/architectures/registry.h"

namespace ridge {

void build_mimo_v2_flash(Construction& c) {
  const Shape full = read_shape(c.config, {.n_kv_heads = 4, .head_dim = 192, .max_context = 131072, .eps = 1e-5});
  Shape sliding = full;
  sliding.n_kv_heads = 2 * full.n_kv_heads;
  if (sliding.n_heads % sliding.n_kv_heads != 0) c.config.refuse("num_key_value_heads", "layers with a window have twice as many, which must divide num_attention_heads");
  c.config.refuse_unless("swa_num_key_value_heads", sliding.n_kv_heads);
  const bool bias = c.config.flag_or("attention_bias", false);
  const int v_dim = c.config.integer_or("v_head_dim", 128, 1, 1 << 16);
  const auto value_scale = static_cast<float>(c.config.json().contains("attention_value_scale") ? c.config.number_or("attention_value_scale", 1.0, 1e-6, 1e6) : 0.707);
  std::vector<int> windows = read_windows(c.config, full.n_layers, 129, [](int i) { return i != 0 && (i + 1) % 6 != 0; });
  if (c.config.has("sliding_window_size"))
    for (int& w : windows) w = w > 0 ? c.config.integer("sliding_window_size", 1, 1 << 28) + 1 : 0;
  std::vector<std::string> kinds(static_cast<size_t>(full.n_layers), "sparse");
  kinds[0] = "dense";
  if (c.config.has("mlp_layer_types")) kinds = c.config.texts("mlp_layer_types", kinds.size());
  const MoeOptions moe = read_grouped_moe(c.config, true);
  c.embed("model.embed_tokens.weight", full);
  const int full_rope = c.add_rope(read_rope_parameters(c.config, "full_attention", 5000000.0, 0.334), full);
  const int window_rope = c.add_rope(read_rope_parameters(c.config, "sliding_attention", 10000.0, 0.334), full);
  for (int i = 0; i < full.n_layers; i++) {
    const std::string p = layer_prefix(i);
    const int window = windows[static_cast<size_t>(i)];
    const std::string& kind = kinds[static_cast<size_t>(i)];
    if (kind != "dense" && kind != "sparse") c.config.refuse("mlp_layer_types", "dense and sparse are known");
    c.add_block({.before = c.rms_norm(p + "input_layernorm", full),
                 .module = c.attention(p + "self_attn.", window > 0 ? sliding : full,
                                       {.rope = window > 0 ? window_rope : full_rope, .window = window, .v_dim = v_dim, .value_scale = value_scale, .qkv_bias = bias,
                                        .sinks = window > 0 ? "attention_sink_bias" : ""})},
                {.before = c.rms_norm(p + "post_attention_layernorm", full),
                 .module = kind == "dense" ? c.gated_mlp(p + "mlp.", full, {.act = moe.act}) : c.moe(p + "mlp.", full, moe)});
  }
  c.weights.refuse_unused("model.layers.", full.n_layers);
  c.finish(c.rms_norm("model.norm", full), "model.embed_tokens.weight", "lm_head.weight", full, false);
}

}  // namespace ridge
