// GLM 4.5: Llama's blocks with half of each head rotated, optional norms on the heads of q and k, and DeepSeek-V3's mixture after some dense layers.
#include "model/architectures/registry.h"

namespace ridge {

void build_glm4_moe(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 8, .max_context = 131072, .eps = 1e-5});
  const bool bias = c.config.flag_or("attention_bias", false);
  const QkNorm qk_norm = c.config.flag_or("use_qk_norm", false) ? QkNorm::per_head : QkNorm::none;
  const int n_dense = c.config.integer_or("first_k_dense_replace", 1, 0, 1 << 20);
  const MoeOptions moe = read_grouped_moe(c.config, true);
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(read_rope_parameters(c.config, "", 10000.0, 0.5), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = bias, .qk_norm = qk_norm})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = i < n_dense ? c.gated_mlp(p + "mlp.", s, {.act = moe.act}) : c.moe(p + "mlp.", s, moe)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
