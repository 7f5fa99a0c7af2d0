// OLMoE: Llama with norms on q and k as wholes, and a mixture in every layer.
#include "model/architectures/registry.h"

namespace ridge {

void build_olmoe(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 4096, .eps = 1e-5});
  const bool bias = c.config.flag_or("attention_bias", false);
  c.config.refuse_unless("clip_qkv", nullptr);
  const MoeOptions moe{.n_experts = c.config.integer_or("num_experts", 64, 1, 1 << 16), .top_k = c.config.integer_or("num_experts_per_tok", 8, 1, 1 << 16), .d_ff = s.d_ff,
                       .act = read_activation(c.config, "hidden_act", "silu"), .renormalize = c.config.flag_or("norm_topk_prob", false)};
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = bias, .o_bias = bias, .qk_norm = QkNorm::full_width})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.moe(p + "mlp.", s, moe)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
