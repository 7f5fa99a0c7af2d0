// Ministral 3: Mistral with YaRN and queries that grow with the position: by 1 + beta * ln(1 + floor(position / trained length)).
#include "model/architectures/registry.h"

namespace ridge {

void build_ministral3(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 8, .head_dim = 128, .max_context = 262144, .eps = 1e-5});
  const int window = read_window(c.config, 0);
  c.config.refuse_unless("attention_bias", false);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  const Json parameters = read_rope_parameters(c.config, "", 1000000.0);
  const Config given(parameters, c.config.where() + ", rope_parameters");
  const auto beta = static_cast<float>(given.number("llama_4_scaling_beta", 0, 1e3));
  const int trained = given.integer("original_max_position_embeddings", 1, 1 << 28);
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(parameters, s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = window, .temperature = beta, .temperature_floor = trained})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
