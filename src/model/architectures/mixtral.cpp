// Mixtral: Mistral whose feed-forward parts are mixtures; the weights of the chosen experts sum to 1.
#include "model/architectures/registry.h"

namespace ridge {

void build_mixtral(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 8, .max_context = 131072, .eps = 1e-5});
  const int window = read_window(c.config, 0);
  const MoeOptions moe{.n_experts = c.config.integer_or("num_local_experts", 8, 1, 1 << 16), .top_k = c.config.integer_or("num_experts_per_tok", 2, 1, 1 << 16), .d_ff = s.d_ff,
                       .act = read_activation(c.config, "hidden_act", "silu"), .renormalize = true, .names = {.gate = "w1", .up = "w3", .down = "w2"}};
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s, 1000000.0);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = window})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.moe(p + "block_sparse_moe.", s, moe)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
