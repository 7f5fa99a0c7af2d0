// Granite 3: Llama with four multipliers: on the embedding, on attention's scores, on what each part adds to the stream, and (as a divisor) on the logits.
#include "model/architectures/registry.h"

namespace ridge {

void build_granite(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 2048});
  const bool attention_bias = c.config.flag_or("attention_bias", false), mlp_bias = c.config.flag_or("mlp_bias", false);
  const auto factor = [&](std::string_view key) { return static_cast<float>(c.config.number_or(key, 1.0, 1e-6, 1e6)); };
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s, factor("embedding_multiplier"));
  c.model.logit_scale = 1.0f / factor("logits_scaling");
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .scale = factor("attention_multiplier"), .qkv_bias = attention_bias, .o_bias = attention_bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act, .bias = mlp_bias})},
                factor("residual_multiplier"));
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
