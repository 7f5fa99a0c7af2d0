// Falcon-H1: attention and a Mamba-2 mixer side by side in every layer, then a gated MLP; multipliers almost everywhere. Those on attention's inputs, keys and
// output move into its scale and its values, since both are linear in them.
#include <cmath>

#include "model/architectures/registry.h"
#include "model/modules/mamba2.h"
#include "model/modules/mlp.h"

namespace ridge {

void build_falcon_h1(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.n_kv_heads = 8, .max_context = 8192, .eps = 1e-5});
  const auto factor = [&](std::string_view key) { return static_cast<float>(config.number_or(key, 1.0, 1e-6, 1e6)); };
  const auto factors = [&](std::string_view key, size_t n) { return config.has(key) ? config.numbers(key, n, 1e-6, 1e6) : std::vector<double>(n, 1.0); };
  Mamba2Shape mamba = read_mamba2_shape(config, config.integer_or("mamba_d_ssm", static_cast<int>(config.number_or("mamba_expand", 2, 0.01, 64) * s.d_model),
                                                                  1, 1 << 20));
  mamba.norm = config.flag_or("mamba_rms_norm", false);
  mamba.norm_before_gate = config.flag_or("mamba_norm_before_gate", true);
  mamba.norm_groups = mamba.n_groups;
  mamba.out_bias = config.flag_or("projectors_bias", false);
  mamba.in_scale = factor("ssm_in_multiplier");
  mamba.out_scale = factor("ssm_out_multiplier");
  const std::vector<double> scales = factors("ssm_multipliers", 5), mlp_scales = factors("mlp_multipliers", 2);
  for (size_t i = 0; i < 5; i++) mamba.scales[i] = static_cast<float>(scales[i]);
  const float in = factor("attention_in_multiplier"), out = factor("attention_out_multiplier"), key = factor("key_multiplier");
  const bool mlp_bias = config.flag_or("mlp_bias", false), attention_bias = config.flag_or("attention_bias", false);
  if (attention_bias && (in != 1 || out != 1 || key != 1)) config.refuse("attention_bias", "it is not supported together with attention's multipliers");
  config.refuse_unless("hidden_act", "silu");

  c.embed("model.embed_tokens.weight", s, factor("embedding_multiplier"));
  c.model.logit_scale = factor("lm_head_multiplier");
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    const auto scale = static_cast<float>(in * in * key / std::sqrt(static_cast<double>(s.head_dim)));
    c.add_parallel_block({.norm = c.rms_norm(p + "input_layernorm", s), .ffn_norm = {}, .mixer = make_mamba2(c, p + "mamba.", s.d_model, mamba),
                          .ffn = c.attention(p + "self_attn.", s, {.rope = rope, .scale = scale, .value_scale = in * out, .qkv_bias = attention_bias,
                                                                   .o_bias = attention_bias})});
    c.add_layer({.before = c.rms_norm(p + "pre_ff_layernorm", s),
                 .module = c.gated_mlp(p + "feed_forward.", s, {.bias = mlp_bias, .gate_scale = static_cast<float>(mlp_scales[0]),
                                                                .out_scale = static_cast<float>(mlp_scales[1])})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.final_layernorm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
