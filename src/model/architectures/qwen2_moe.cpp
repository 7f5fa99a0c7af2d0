// Qwen 2 MoE and Qwen 3 MoE: Qwen 2 and 3 with mixtures in every decoder_sparse_step-th layer; the older one has a shared expert behind a sigmoid gate.
#include <algorithm>

#include "model/architectures/registry.h"

namespace ridge {
namespace {

void build(Construction& c, const Shape& s, const AttentionOptions& attention, const std::vector<int>& windows, const MoeOptions& moe) {
  const int every = c.config.integer_or("decoder_sparse_step", 1, 1, 1 << 20);
  const std::vector<int> dense = c.config.integers("mlp_only_layers", 0, 1 << 20);
  const auto is_sparse = [&](int i) { return moe.n_experts > 0 && (i + 1) % every == 0 && std::find(dense.begin(), dense.end(), i) == dense.end(); };
  c.embed("model.embed_tokens.weight", s);
  AttentionOptions of_layer = attention;
  of_layer.rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    of_layer.window = windows[static_cast<size_t>(i)];
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = c.attention(p + "self_attn.", s, of_layer)},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = is_sparse(i) ? c.moe(p + "mlp.", s, moe) : c.gated_mlp(p + "mlp.", s, {.act = moe.act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

// The key for the number of experts changed its name.
MoeOptions read_moe(const Config& config, int default_top_k, int default_experts, int default_d_ff) {
  return {.n_experts = config.integer_or(config.has("num_experts") ? "num_experts" : "num_local_experts", default_experts, 0, 1 << 16),
          .top_k = config.integer_or("num_experts_per_tok", default_top_k, 1, 1 << 16), .d_ff = config.integer_or("moe_intermediate_size", default_d_ff, 1, 1 << 24),
          .act = read_activation(config, "hidden_act", "silu"), .renormalize = config.flag_or("norm_topk_prob", false)};
}

}  // namespace

void build_qwen2_moe(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 16, .max_context = 32768});
  const bool slides = c.config.flag_or("use_sliding_window", false);
  const int first_full = c.config.integer_or("max_window_layers", 28, 0, 1 << 20);
  const std::vector<int> windows = slides ? read_windows(c.config, s.n_layers, 4096, [&](int i) { return i % 2 == 0 && i < first_full; }) : std::vector<int>(s.n_layers, 0);
  MoeOptions moe = read_moe(c.config, 4, 60, 1408);
  moe.shared = "shared_expert.";
  moe.d_shared = c.config.integer_or("shared_expert_intermediate_size", 5632, 1, 1 << 24);
  moe.shared_gate = "shared_expert_gate";
  build(c, s, {.qkv_bias = c.config.flag_or("qkv_bias", true)}, windows, moe);
}

void build_qwen3_moe(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 4, .max_context = 32768});
  const bool bias = c.config.flag_or("attention_bias", false);
  const std::vector<int> windows(static_cast<size_t>(s.n_layers), c.config.flag_or("use_sliding_window", false) ? read_window(c.config, 4096) : 0);
  build(c, s, {.qkv_bias = bias, .o_bias = bias, .qk_norm = QkNorm::per_head}, windows, read_moe(c.config, 8, 128, 768));
}

}  // namespace ridge
