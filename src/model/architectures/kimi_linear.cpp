// Kimi Linear: three layers of Kimi's delta attention to one of latent attention without positions; mixtures after the first layer.
#include <algorithm>

#include "model/architectures/registry.h"
#include "model/modules/gated_delta_net.h"
#include "model/modules/mla.h"

namespace ridge {
namespace {

// Checkpoints keep the linear layers' sizes in a section of their own, and count layers from 1 there.
struct LinearLayers { DeltaShape delta; std::vector<bool> linear; };
LinearLayers read_linear(const Config& config, const Shape& s) {
  const bool has_section = config.has("linear_attn_config");
  const Config section = has_section ? config.section("linear_attn_config") : config;
  const auto size = [&](const char* key, const char* own_key, int fallback, int most) {
    return has_section && section.has(key) ? section.integer(key, 1, most) : config.integer_or(own_key, fallback, 1, most);
  };
  const int n_heads = size("num_heads", "linear_num_heads", 32, 1 << 16), dim = size("head_dim", "linear_head_dim", 128, 4096);
  LinearLayers out{.delta = {.n_heads = n_heads, .n_k_heads = n_heads, .dk = dim, .dv = dim, .n_taps = size("short_conv_kernel_size",
                                                                                                            "linear_conv_kernel_dim", 4, 16), .n_decays = dim,
                             .norm_eps = s.eps, .gate_act = ActKind::sigmoid}, .linear = {}};
  const std::vector<int> full = has_section ? section.integers("full_attn_layers", 1, s.n_layers) : std::vector<int>{};
  out.linear = read_linear_layers(config, s.n_layers, [&](int i) {
    return has_section && section.has("full_attn_layers") ? std::find(full.begin(), full.end(), i + 1) == full.end() : i == 0 || i % 4 != 0;
  });
  return out;
}

MoeOptions read_mixture(const Config& config) {
  const int d_ff = config.integer_or("moe_intermediate_size", 1024, 1, 1 << 20);
  const auto first = [&](std::initializer_list<const char*> keys, int fallback) {
    for (const char* key : keys)
      if (config.has(key)) return config.integer(key, 1, 1 << 16);
    return fallback;
  };
  config.refuse_unless("moe_router_activation_func", "sigmoid");
  config.refuse_unless("moe_layer_freq", 1);
  return {.n_experts = first({"num_experts", "num_local_experts"}, 256), .top_k = first({"num_experts_per_token", "num_experts_per_tok"}, 8), .d_ff = d_ff,
          .gate = GateKind::sigmoid, .renormalize = config.flag_or(config.has("moe_renormalize") ? "moe_renormalize" : "norm_topk_prob", true),
          .n_groups = first({"num_expert_group", "n_group"}, 1), .top_groups = first({"topk_group"}, 1), .group_best = 2, .norm_eps = 1e-20f,
          .scale = static_cast<float>(config.number_or("routed_scaling_factor", 2.446, 0, 1e6)), .choice_bias = "gate.e_score_correction_bias",
          .names = {.gate = "w1", .up = "w3", .down = "w2"}, .shared = "shared_experts.", .d_shared = d_ff * first({"num_shared_experts", "n_shared_experts"}, 1)};
}

}  // namespace

void build_kimi_linear(Construction& c) {
  const Config& config = c.config;
  Shape s = read_shape(config, {.max_context = config.integer_or("model_max_length", 1 << 20, 1, 1 << 28), .eps = 1e-5});
  const MlaShape mla = read_mla_shape(config);
  const MoeOptions moe = read_mixture(config);
  const LinearLayers layers = read_linear(config, s);
  const bool bias = config.flag_or("attention_bias", false);
  config.refuse_unless("hidden_act", "silu");
  config.refuse_unless("mla_use_nope", true);
  std::vector<std::string> kinds;
  for (int i = 0; i < s.n_layers; i++) kinds.emplace_back(i < config.integer_or("first_k_dense_replace", 1, 0, 1 << 20) ? "dense" : "sparse");
  if (config.has("mlp_layer_types")) kinds = config.texts("mlp_layer_types", static_cast<size_t>(s.n_layers));
  c.embed("model.embed_tokens.weight", s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i), &kind = kinds[static_cast<size_t>(i)];
    if (kind != "dense" && kind != "sparse") config.refuse("mlp_layer_types", "only dense and sparse are known");
    const std::string ffn = p + (c.weights.has(p + "mlp.gate_proj.weight") ? "mlp." : "block_sparse_moe.");        // dense ones go by either name
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = layers.linear[static_cast<size_t>(i)] ? make_gated_delta_net(c, p + "self_attn.", s.d_model, layers.delta, DeltaProjections::low_rank)
                                                                 : make_mla(c, p + "self_attn.", s, mla, {.bias = bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s), .module = kind == "sparse" ? c.moe(ffn, s, moe) : c.gated_mlp(ffn, s, {})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
