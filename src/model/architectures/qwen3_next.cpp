// Qwen3-Next and Qwen3.5: three gated DeltaNet layers to one of attention, whose output has a gate and of whose heads a quarter rotates; norms are 1 + weight.
// Qwen3.5 names the projections of its DeltaNet one by one, and has dense and mixture versions; those that also see images keep the text model under a prefix.
#include <algorithm>

#include "model/architectures/registry.h"
#include "model/modules/gated_delta_net.h"

namespace ridge {
namespace {

MoeOptions read_moe(const Config& config, int n_experts, int top_k) {
  return {.n_experts = config.integer_or("num_experts", n_experts, 0, 1 << 16), .top_k = config.integer_or("num_experts_per_tok", top_k, 1, 1 << 16),
          .d_ff = config.integer_or("moe_intermediate_size", 512, 1, 1 << 24), .renormalize = config.flag_or("norm_topk_prob", true), .shared = "shared_expert.",
          .d_shared = config.integer_or("shared_expert_intermediate_size", 512, 1, 1 << 24), .shared_gate = "shared_expert_gate"};
}

void build(Construction& c, DeltaProjections projections, const MoeOptions& moe, int n_kv_heads) {
  const Config& config = c.config;
  Json filled = config.json();
  if (!config.has("intermediate_size")) filled["intermediate_size"] = 5632;         // of dense layers, which a mixture need not have
  const Shape s = read_shape(Config(filled, config.where()), {.n_kv_heads = n_kv_heads, .head_dim = 256, .max_context = 32768, .eps = 1e-6});
  const DeltaShape delta = read_delta_shape(config);
  const bool bias = config.flag_or("attention_bias", false);
  const int interval = config.integer_or("full_attention_interval", 4, 1, 1 << 20), every = config.integer_or("decoder_sparse_step", 1, 1, 1 << 20);
  const std::vector<bool> linear = read_linear_layers(config, s.n_layers, [&](int i) { return (i + 1) % interval != 0; });
  const std::vector<int> dense = config.integers("mlp_only_layers", 0, 1 << 20);
  const auto mixes = [&](int i) { return moe.n_experts > 0 && (i + 1) % every == 0 && std::find(dense.begin(), dense.end(), i) == dense.end(); };

  const std::string root = c.weights.has("model.language_model.embed_tokens.weight") ? "model.language_model." : "model.";
  c.embed(root + "embed_tokens.weight", s);
  const int rope = c.add_rope(read_rope_parameters(config, "", 10000.0, 0.25), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i, root + "layers.");
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s, 1),
                 .module = linear[static_cast<size_t>(i)] ? make_gated_delta_net(c, p + "linear_attn.", s.d_model, delta, projections)
                                                          : c.attention(p + "self_attn.", s, {.rope = rope, .qkv_bias = bias, .o_bias = bias,
                                                                                              .qk_norm = QkNorm::per_head,
                                                                                              .norm_offset = 1, .gate = OutputGate::in_q_proj})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s, 1), .module = mixes(i) ? c.moe(p + "mlp.", s, moe) : c.gated_mlp(p + "mlp.", s, {})});
  }
  c.weights.refuse_unused(root + "layers.", s.n_layers);
  c.finish(c.rms_norm(root + "norm", s, 1), root + "embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace

void build_qwen3_next(Construction& c) { build(c, DeltaProjections::interleaved, read_moe(c.config, 512, 10), 2); }
void build_qwen3_5(Construction& c) { build(c, DeltaProjections::stacked, {}, 4); }
void build_qwen3_5_moe(Construction& c) {
  MoeOptions moe = read_moe(c.config, 256, 8);
  moe.renormalize = true;
  build(c, DeltaProjections::stacked, moe, 2);
}

}  // namespace ridge
