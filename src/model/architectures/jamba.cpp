// Jamba: Mamba-1 layers (with norms on dt, b and c) and attention without positions in every attn_layer_period-th; a mixture in every expert_layer_period-th.
#include "model/architectures/registry.h"
#include "model/modules/mamba.h"

namespace ridge {

void build_jamba(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.n_kv_heads = 8, .max_context = 262144, .eps = 1e-6});
  config.refuse_unless("hidden_act", "silu");
  const MambaShape mamba{.d_inner = static_cast<int64_t>(config.number_or("mamba_expand", 2, 0.01, 64) * s.d_model),
                         .n_state = config.integer_or("mamba_d_state", 16, 1, 1 << 12),
                         .n_taps = config.integer_or("mamba_d_conv", 4, 1, 16), .dt_rank = read_dt_rank(config, "mamba_dt_rank", s.d_model),
                         .proj_bias = config.flag_or("mamba_proj_bias", false), .conv_bias = config.flag_or("mamba_conv_bias", true), .norms = true, .eps = s.eps};
  const MoeOptions moe{.n_experts = config.integer_or("num_experts", 16, 1, 1 << 16), .top_k = config.integer_or("num_experts_per_tok", 2, 1, 1 << 16),
                       .d_ff = s.d_ff,
                       .router = "router"};
  const auto every = [&](const char* period, int default_period, const char* offset, int default_offset) {
    return [n = config.integer_or(period, default_period, 1, 1 << 20), first = config.integer_or(offset, default_offset, 0,
                                                                                                 1 << 20)](int i) { return i % n == first; };
  };
  const auto attends = every("attn_layer_period", 8, "attn_layer_offset", 4), mixes = every("expert_layer_period", 2, "expert_layer_offset", 1);
  c.embed("model.embed_tokens.weight", s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = attends(i) ? c.attention(p + "self_attn.", s, {}) : make_mamba(c, p + "mamba.", s.d_model, mamba)},
                {.before = c.rms_norm(p + "pre_ff_layernorm", s),
                 .module = mixes(i) && moe.n_experts > 1 ? c.moe(p + "feed_forward.", s, moe) : c.gated_mlp(p + "feed_forward.", s, {})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.final_layernorm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
