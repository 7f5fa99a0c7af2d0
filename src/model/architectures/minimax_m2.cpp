// MiniMax-M2: Llama with norms on q and k as wholes, part of each head rotated, and mixtures with sigmoid gates and a bias for the choice.
#include "model/architectures/registry.h"

namespace ridge {

void build_minimax_m2(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 8, .head_dim = 128, .max_context = 196608});
  c.config.refuse_unless("scoring_func", "sigmoid");
  c.config.refuse_unless("use_qk_norm", true);
  c.config.refuse_unless("qk_norm_type", "per_layer");
  const MoeOptions moe{.n_experts = c.config.integer_or("num_local_experts", 256, 1, 1 << 16), .top_k = c.config.integer_or("num_experts_per_tok", 8, 1, 1 << 16), .d_ff = s.d_ff,
                       .act = read_activation(c.config, "hidden_act", "silu"), .gate = GateKind::sigmoid, .renormalize = true,
                       .choice_bias = "e_score_correction_bias", .names = {.gate = "w1", .up = "w3", .down = "w2"}};
  c.embed("model.embed_tokens.weight", s);
  const double rotated = c.config.integer_or("rotary_dim", s.head_dim, 2, s.head_dim) / static_cast<double>(s.head_dim);
  const int rope = c.add_rope(read_rope_parameters(c.config, "", 5000000.0, rotated), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, {.rope = rope, .qk_norm = QkNorm::full_width})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.moe(p + "block_sparse_moe.", s, moe)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
