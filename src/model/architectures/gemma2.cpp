// Gemma 2: norms before and after each part, every other layer sees a window, attention's scores and the logits are capped by tanh.
#include <cmath>

#include "model/architectures/registry.h"

namespace ridge {

void build_gemma2(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 4, .head_dim = 256, .max_context = 8192});
  const bool bias = c.config.flag_or("attention_bias", false);
  c.config.refuse_unless("use_bidirectional_attention", false);
  const std::vector<int> windows = read_windows(c.config, s.n_layers, 4096, [](int i) { return i % 2 == 0; });
  const ActKind act = read_activation(c.config, "hidden_activation", "gelu_pytorch_tanh");
  const double scale = 1.0 / std::sqrt(c.config.number_or("query_pre_attn_scalar", 256, 1e-6, 1e6));
  // A null cap is none; an absent one is the family's.
  const auto cap = [&](const char* key, double fallback) { return static_cast<float>(c.config.json().contains(key) ? c.config.number_or(key, 0, 0, 1e6) : fallback); };
  const float score_cap = cap("attn_logit_softcapping", 50);
  c.model.logit_softcap = cap("final_logit_softcapping", 30);
  c.embed("model.embed_tokens.weight", s, std::sqrt(static_cast<float>(s.d_model)));
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s, 1), .after = c.rms_norm(p + "post_attention_layernorm", s, 1),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = windows[i], .scale = static_cast<float>(scale), .softcap = score_cap,
                                                             .qkv_bias = bias, .o_bias = bias})},
                {.before = c.rms_norm(p + "pre_feedforward_layernorm", s, 1), .after = c.rms_norm(p + "post_feedforward_layernorm", s, 1),
                 .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s, 1), "model.embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
