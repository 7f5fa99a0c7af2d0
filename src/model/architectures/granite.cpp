// Granite 3: Llama with four multipliers: on the embedding, on attention's scores, on what each part adds to the stream, and (as a divisor) on the logits. Granite 3 MoE
// has mixtures for the MLP, whose weights are a softmax over the chosen experts alone; experts are fused.
#include "model/architectures/registry.h"

namespace ridge {
namespace {

template <class Ffn>
void build(Construction& c, const Shape& s, Ffn&& ffn) {
  const bool bias = c.config.flag_or("attention_bias", false);
  const auto factor = [&](std::string_view key) { return static_cast<float>(c.config.number_or(key, 1.0, 1e-6, 1e6)); };
  c.embed("model.embed_tokens.weight", s, factor("embedding_multiplier"));
  c.model.logit_scale = 1.0f / factor("logits_scaling");
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .scale = factor("attention_multiplier"), .qkv_bias = bias, .o_bias = bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = ffn(p)}, factor("residual_multiplier"));
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace

void build_granite(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 2048});
  const MlpOptions mlp{.act = read_activation(c.config, "hidden_act", "silu"), .bias = c.config.flag_or("mlp_bias", false)};
  build(c, s, [&](const std::string& p) { return c.gated_mlp(p + "mlp.", s, mlp); });
}

void build_granitemoe(Construction& c) {
  const Shape s = read_shape(c.config, {.max_context = 2048});
  const MoeOptions moe{.n_experts = c.config.integer_or("num_local_experts", 8, 1, 1 << 16), .top_k = c.config.integer_or("num_experts_per_tok", 2, 1, 1 << 16), .d_ff = s.d_ff,
                       .act = read_activation(c.config, "hidden_act", "silu"), .gate_chosen = true, .router = "router.layer",
                       .fused_gate_up = "input_linear.weight", .fused_down = "output_linear.weight"};
  build(c, s, [&](const std::string& p) { return c.moe(p + "block_sparse_moe.", s, moe); });
}

}  // namespace ridge
