// gpt-oss: layers with a window and full ones in turn, sinks and biases in attention, a yarn rope, and mixtures with a clamped activation and biases. Its experts are
// fused with gate and up taking turns: plain numbers as [experts, inputs, outputs], or MXFP4 blocks as [experts, outputs, inputs].
#include "model/architectures/registry.h"

namespace ridge {

void build_gpt_oss(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 8, .head_dim = 64, .max_context = 131072, .eps = 1e-5});
  const bool bias = c.config.flag_or("attention_bias", true);
  const std::vector<int> windows = read_windows(c.config, s.n_layers, 128, [](int i) { return i % 2 == 0; });
  if (c.config.number_or("swiglu_alpha", 1.702, 0, 100) != 1.702) c.config.refuse("swiglu_alpha", "only 1.702 is supported");
  const MoeOptions moe{.n_experts = c.config.integer_or(c.config.has("num_local_experts") ? "num_local_experts" : "num_experts", 128, 1, 1 << 16),
                       .top_k = c.config.integer_or("num_experts_per_tok", 4, 1, 1 << 16), .d_ff = s.d_ff, .act = ActKind::gpt_oss,
                       .limit = static_cast<float>(c.config.number_or("swiglu_limit", 7.0, 1e-3, 1e6)), .bias = true, .gate_chosen = true, .router = "router",
                       .router_bias = true, .transposed = true, .interleaved = true};
  c.embed("model.embed_tokens.weight", s);
  const Json yarn{{"rope_type", "yarn"}, {"factor", 32.0}, {"beta_fast", 32.0}, {"beta_slow", 1.0}, {"truncate", false}, {"original_max_position_embeddings", 4096},
                  {"rope_theta", 150000.0}, {"partial_rotary_factor", 1.0}};
  const int rope = c.add_rope(c.config.has("rope_parameters") ? read_rope_parameters(c.config, "", 150000.0) : yarn, s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = rope, .window = windows[static_cast<size_t>(i)], .qkv_bias = bias, .o_bias = bias, .sinks = "sinks"})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = c.moe(p + "mlp.", s, moe)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
