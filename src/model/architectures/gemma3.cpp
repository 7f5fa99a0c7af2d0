// Gemma 3 (text): Gemma 2 with norms on the heads of q and k, five window layers to one full one, and a rope for each of the two kinds. Checkpoints that also see
// images keep the text model's tensors under a prefix; the rest of them is left alone.
#include <cmath>

#include "model/architectures/registry.h"

namespace ridge {

void build_gemma3(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.n_kv_heads = 4, .head_dim = 256, .max_context = 131072});
  const bool bias = config.flag_or("attention_bias", false);
  config.refuse_unless("use_bidirectional_attention", false);
  const int pattern = config.integer_or("sliding_window_pattern", 6, 1, 1 << 20);
  const std::vector<int> windows = read_windows(config, s.n_layers, 4096, [&](int i) { return (i + 1) % pattern != 0; });
  const ActKind act = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  const double scale = 1.0 / std::sqrt(config.number_or("query_pre_attn_scalar", 256, 1e-6, 1e6));
  const auto score_cap = static_cast<float>(config.number_or("attn_logit_softcapping", 0, 0, 1e6));
  c.model.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0, 0, 1e6));

  std::string root = "model.";
  for (const char* prefix : {"language_model.model.", "model.language_model."})
    if (c.weights.has(std::string(prefix) + "embed_tokens.weight")) root = prefix;
  c.embed(root + "embed_tokens.weight", s, std::sqrt(static_cast<float>(s.d_model)));
  const int full_rope = c.add_rope(read_rope_parameters(config, "full_attention", 1000000.0), s);
  const int window_rope = c.add_rope(read_rope_parameters(config, "sliding_attention", 10000.0), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i, root + "layers.");
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s, 1), .after = c.rms_norm(p + "post_attention_layernorm", s, 1),
                 .module = c.attention(p + "self_attn.", s, {.rope = windows[i] ? window_rope : full_rope, .window = windows[i], .scale = static_cast<float>(scale),
                                                             .softcap = score_cap, .qkv_bias = bias, .o_bias = bias, .qk_norm = QkNorm::per_head, .norm_offset = 1})},
                {.before = c.rms_norm(p + "pre_feedforward_layernorm", s, 1), .after = c.rms_norm(p + "post_feedforward_layernorm", s, 1),
                 .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused(root + "layers.", s.n_layers);
  c.finish(c.rms_norm(root + "norm", s, 1), root + "embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
