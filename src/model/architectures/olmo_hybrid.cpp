// OLMo Hybrid: gated DeltaNet layers with norms before their parts, and OLMo 3's attention layers with norms after them. Checkpoints name the norms in two ways.
#include "model/architectures/registry.h"
#include "model/modules/gated_delta_net.h"

namespace ridge {

void build_olmo_hybrid(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.max_context = 65536, .eps = 1e-6});
  const bool bias = config.flag_or("attention_bias", false);
  config.refuse_unless("hidden_act", "silu");
  DeltaShape delta = read_delta_shape(config, {.n_heads = s.n_heads, .n_k_heads = s.n_heads});
  if (!config.has("linear_key_head_dim")) delta.dk = static_cast<int>(0.75 * s.d_model / delta.n_k_heads);
  if (!config.has("linear_value_head_dim")) delta.dv = 2 * delta.dk;
  delta.norm_eps = 1e-5f;
  delta.beta_scale = config.flag_or("linear_allow_neg_eigval", true) ? 2.0f : 1.0f;
  const std::vector<bool> linear = read_linear_layers(config, s.n_layers, [](int i) { return i % 4 != 3; });
  c.embed("model.embed_tokens.weight", s);
  const bool rotates = config.has("rope_parameters") && config.section("rope_parameters").has("rope_theta");
  const int rope = rotates ? c.add_rope(s) : -1;
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    const auto norm = [&](const char* name, const char* other) { return c.rms_norm(p + (c.weights.has(p + name + ".weight") ? name : other), s); };
    if (linear[static_cast<size_t>(i)]) {
      c.add_block({.before = norm("input_layernorm", "attention_layer_norm"),
                   .module = make_gated_delta_net(c, p + "linear_attn.", s.d_model, delta, DeltaProjections::separate)},
                  {.before = norm("post_attention_layernorm", "feedforward_layer_norm"), .module = c.gated_mlp(p + "mlp.", s, {})});
    } else {
      c.add_block({.after = norm("post_attention_layernorm", "feedforward_layer_norm"),
                   .module = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = bias, .o_bias = bias, .qk_norm = QkNorm::full_width})},
                  {.after = c.rms_norm(p + "post_feedforward_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {})});
    }
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
