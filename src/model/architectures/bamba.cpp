// Bamba: Mamba-2 layers with a few of attention among them (attn_layer_indices), each followed by a gated MLP; half of an attention head rotates.
#include <algorithm>

#include "model/architectures/registry.h"
#include "model/modules/mamba2.h"

namespace ridge {

void build_bamba(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.n_kv_heads = 8, .max_context = 262144, .eps = 1e-5});
  const Mamba2Shape mamba = read_mamba2_shape(config, static_cast<int>(config.number_or("mamba_expand", 2, 0.01, 64) * s.d_model));
  const bool attention_bias = config.flag_or("attention_bias", false), mlp_bias = config.flag_or("mlp_bias", false);
  config.refuse_unless("hidden_act", "silu");
  const std::vector<int> attention_layers = config.integers("attn_layer_indices", 0, s.n_layers - 1);
  c.embed("model.embed_tokens.weight", s);
  const int rope = attention_layers.empty() ? -1 : c.add_rope(read_rope_parameters(config, "", 10000.0, 0.5), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    const bool attends = std::find(attention_layers.begin(), attention_layers.end(), i) != attention_layers.end();
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = attends ? c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = attention_bias, .o_bias = attention_bias})
                                   : make_mamba2(c, p + "mamba.", s.d_model, mamba)},
                {.before = c.rms_norm(p + "pre_ff_layernorm", s), .module = c.gated_mlp(p + "feed_forward.", s, {.bias = mlp_bias})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.final_layernorm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
