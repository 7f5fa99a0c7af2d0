// MiniMax-01: lightning attention with full attention in every other layer, mixtures everywhere, and a residual stream that starts anew from each norm.
#include "model/architectures/registry.h"
#include "model/blocks/renormed.h"
#include "model/modules/lightning.h"

namespace ridge {

void build_minimax(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.n_kv_heads = 8, .max_context = 131072, .eps = 1e-5});
  const ActKind act = read_activation(config, "hidden_act", "silu");
  const MoeOptions moe{.n_experts = config.integer_or("num_local_experts", 8, 1, 1 << 16), .top_k = config.integer_or("num_experts_per_tok", 2, 1, 1 << 16),
                       .d_ff = s.d_ff,
                       .act = act, .renormalize = true, .names = {.gate = "w1", .up = "w3", .down = "w2"}};
  const int window = read_window(config, 0);
  const std::vector<bool> linear = read_linear_layers(config, s.n_layers, [](int i) { return i % 2 == 1; });
  const auto factor = [&](const std::string& key) { return static_cast<float>(config.number_or(key, 1.0, -1e6, 1e6)); };
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s, 1000000.0);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i), kind = linear[static_cast<size_t>(i)] ? "linear_attn_" : "full_attn_";
    c.model.blocks.push_back(std::make_unique<RenormedBlock>(
        RenormedBlock::Part{.norm = c.rms_norm(p + "input_layernorm", s),
                            .module = linear[static_cast<size_t>(i)] ? make_lightning(c, p + "self_attn.", s, i, act)
                                                                     : c.attention(p + "self_attn.", s, {.rope = rope, .window = window}),
                            .stream_scale = factor(kind + "alpha_factor"), .part_scale = factor(kind + "beta_factor")},
        RenormedBlock::Part{.norm = c.rms_norm(p + "post_attention_layernorm", s), .module = c.moe(p + "block_sparse_moe.", s, moe),
                            .stream_scale = factor("mlp_alpha_factor"), .part_scale = factor("mlp_beta_factor")}));
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
