// Phi-3 and Phi-4-mini: Llama with fused projections (qkv_proj, gate_up_proj), LongRoPE, and sometimes only part of a head rotated.
#include "model/architectures/registry.h"

namespace ridge {

void build_phi3(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 4096, .eps = 1e-5});
  const int window = read_window(c.config, 0);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.config.refuse_unless("attention_bias", false);
  Json parameters = read_rope_parameters(c.config, "", 10000.0);
  if (parameters["rope_type"] == "yarn") parameters["rope_type"] = "longrope";       // what the first configs called it
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(parameters, s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = window, .fused_qkv = "qkv_proj"})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act, .fused_gate_up = true})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
