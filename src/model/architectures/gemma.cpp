// Gemma 1: Llama with norms that multiply by 1 + weight, embeddings times sqrt(d_model), GELU, and heads of 256.
#include <cmath>

#include "model/architectures/registry.h"

namespace ridge {

void build_gemma(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 16, .head_dim = 256, .max_context = 8192});
  const bool bias = c.config.flag_or("attention_bias", false);
  c.config.refuse_unless("use_bidirectional_attention", false);
  // hidden_activation, where a config has both, is what the model was trained with.
  const ActKind act = read_activation(c.config, c.config.has("hidden_activation") ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh");
  c.embed("model.embed_tokens.weight", s, std::sqrt(static_cast<float>(s.d_model)));
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s, 1), .module = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = bias, .o_bias = bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s, 1), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s, 1), "model.embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
