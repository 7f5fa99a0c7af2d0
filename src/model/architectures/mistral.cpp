// Mistral: Llama whose layers all see a window (4096 where the config leaves it out, all positions where it is null).
#include <algorithm>

#include "model/architectures/registry.h"

namespace ridge {

void build_mistral(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 8, .max_context = 131072});
  const int window = read_window(c.config, 4096);
  const auto slides = read_layer_types(c.config, s.n_layers);
  if (slides && window > 0 && std::find(slides->begin(), slides->end(), false) != slides->end())
    c.config.refuse("layer_types", "layers of both kinds are not Mistral's; set sliding_window to null where all are full");
  c.config.refuse_unless("attention_bias", false);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = window})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
