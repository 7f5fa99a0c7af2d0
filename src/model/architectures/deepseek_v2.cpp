// DeepSeek-V2: latent attention, and mixtures with shared experts after the first layers. Experts are chosen by softmax scores, from the best groups of them in the
// large model (group_limited_greedy). The scores are not divided by their sum, whatever norm_topk_prob says: no published model has it set, and Hugging Face
// does not read it.
#include "model/architectures/registry.h"
#include "model/modules/mla.h"

namespace ridge {

void build_deepseek_v2(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {});
  const MlaShape mla = read_mla_shape(config);
  const ActKind act = read_activation(config, "hidden_act", "silu");
  const bool bias = config.flag_or("attention_bias", false);
  const std::string method = config.text_or("topk_method", "greedy");
  if (method != "greedy" && method != "group_limited_greedy") config.refuse("topk_method", "only greedy and group_limited_greedy are supported");
  config.refuse_unless("scoring_func", "softmax");
  config.refuse_unless("moe_layer_freq", 1);
  config.refuse_unless("mlp_bias", false);
  const bool grouped = method == "group_limited_greedy";
  const int n_dense = config.integer_or("first_k_dense_replace", 0, 0, 1 << 20), d_expert = config.integer_or("moe_intermediate_size", 1407, 1, 1 << 20);
  const MoeOptions mixture{.n_experts = config.integer_or("n_routed_experts", 64, 1, 1 << 16), .top_k = config.integer("num_experts_per_tok", 1, 1 << 16),
                           .d_ff = d_expert, .act = act, .n_groups = grouped ? config.integer("n_group", 1, 1 << 16) : 1,
                           .top_groups = grouped ? config.integer("topk_group", 1, 1 << 16) : 1,
                           .scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.0, 0, 1e6)), .shared = "shared_experts.",
                           .d_shared = d_expert * config.integer_or("n_shared_experts", 2, 1, 1 << 10)};

  c.embed("model.embed_tokens.weight", s);
  const int rope = add_mla_rope(c, s, mla);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = make_mla(c, p + "self_attn.", s, mla, {.rope = rope, .scale = mla_scale(config, mla), .bias = bias})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s),
                 .module = i < n_dense ? c.gated_mlp(p + "mlp.", s, {.act = act}) : c.moe(p + "mlp.", s, mixture)});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
