// Granite 4: Mamba-2 layers with a few of attention among them (mostly without rope), Granite's four multipliers, and a shared MLP beside the mixture, or alone.
#include "model/architectures/registry.h"
#include "model/modules/mamba2.h"

namespace ridge {

void build_granitemoehybrid(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.max_context = 2048});
  Shape shared = s;
  shared.d_ff = config.integer_or("shared_intermediate_size", 1024, 1, 1 << 20);
  const auto factor = [&](std::string_view key) { return static_cast<float>(config.number_or(key, 1.0, 1e-6, 1e6)); };
  const bool bias = config.flag_or("attention_bias", false);
  config.refuse_unless("hidden_act", "silu");
  Mamba2Shape mamba = read_mamba2_shape(config, static_cast<int>(config.number_or("mamba_expand", 2, 0.01, 64) * s.d_model));
  mamba.eps = s.eps;
  const int n_experts = config.integer_or("num_local_experts", 8, 0, 1 << 16);
  const MoeOptions moe{.n_experts = n_experts, .top_k = config.integer_or("num_experts_per_tok", 2, 0, 1 << 16), .d_ff = s.d_ff, .gate_chosen = true,
                       .router = "router.layer",
                       .fused_gate_up = "input_linear.weight", .fused_down = "output_linear.weight"};
  const std::vector<bool> linear = read_linear_layers(config, s.n_layers, [](int) { return true; });
  const std::string positions = config.text_or("position_embedding_type", "nope");
  if (positions != "rope" && positions != "nope") config.refuse("position_embedding_type", "only rope, nope and null are known");
  c.embed("model.embed_tokens.weight", s, factor("embedding_multiplier"));
  c.model.logit_scale = 1.0f / factor("logits_scaling");
  const int rope = positions == "rope" ? c.add_rope(s) : -1;
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    auto mlp = c.gated_mlp(p + "shared_mlp.", shared, {.fused_gate_up = true, .names = {.down = "output_linear"}, .fused = "input_linear"});
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = linear[static_cast<size_t>(i)]
                               ? make_mamba2(c, p + "mamba.", s.d_model, mamba)
                               : c.attention(p + "self_attn.", s, {.rope = rope, .scale = factor("attention_multiplier"), .qkv_bias = bias, .o_bias = bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s),
                 .module = n_experts > 0 ? c.moe(p + "block_sparse_moe.", s, moe, std::move(mlp)) : std::move(mlp)},
                factor("residual_multiplier"));
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
