// OLMo 2: norms after each part instead of before, and one norm over the whole width of q and of k.
#include "model/architectures/registry.h"

namespace ridge {

void build_olmo2(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 2048, .eps = 1e-5});
  const bool bias = c.config.flag_or("attention_bias", false);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.after = c.rms_norm(p + "post_attention_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = bias, .o_bias = bias, .qk_norm = QkNorm::full_width})},
                {.after = c.rms_norm(p + "post_feedforward_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
