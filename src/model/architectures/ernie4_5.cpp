// ERNIE 4.5 (dense): Llama that rotates neighbouring pairs; one flag puts biases everywhere.
#include "model/architectures/registry.h"

namespace ridge {

void build_ernie4_5(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 2, .head_dim = 128, .max_context = 131072, .eps = 1e-5});
  const bool bias = c.config.flag_or("use_bias", false);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s, 500000.0);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .style = RopeStyle::interleaved, .qkv_bias = bias, .o_bias = bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act, .bias = bias})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
