// ERNIE 4.5 MoE: ERNIE's attention (neighbouring pairs rotate), and mixtures with softmax gates, a bias for the choice, and shared experts, in a range of the layers.
#include "model/architectures/registry.h"

namespace ridge {

void build_ernie4_5_moe(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 4, .max_context = 131072, .eps = 1e-5});
  c.config.refuse_unless("use_bias", false);
  const int first = c.config.integer_or("moe_layer_start_index", 1, 0, 1 << 20), last = c.config.integer_or("moe_layer_end_index", -1, -1, 1 << 20);
  const int every = c.config.integer_or("moe_layer_interval", 1, 1, 1 << 20);
  const int d_ff = c.config.integer_or("moe_intermediate_size", 1536, 1, 1 << 24), n_shared = c.config.integer_or("moe_num_shared_experts", 2, 0, 1 << 10);
  const MoeOptions moe{.n_experts = c.config.integer_or("moe_num_experts", 64, 1, 1 << 16), .top_k = c.config.integer_or("moe_k", 6, 1, 1 << 16), .d_ff = d_ff,
                       .act = read_activation(c.config, "hidden_act", "silu"), .renormalize = true,
                       .norm_least = static_cast<float>(c.config.number_or("moe_norm_min", 1e-12, 0.0, 1.0)), .choice_bias = "moe_statics.e_score_correction_bias",
                       .shared = n_shared > 0 ? "shared_experts." : "", .d_shared = n_shared * d_ff};
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s, 500000.0);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    const bool is_sparse = (i + 1) % every == 0 && i >= first && (last < 0 || i <= last);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, {.rope = rope, .style = RopeStyle::interleaved})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = is_sparse ? c.moe(p + "mlp.", s, moe) : c.gated_mlp(p + "mlp.", s, {.act = moe.act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
