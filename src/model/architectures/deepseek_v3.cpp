// DeepSeek-V3: latent attention, and mixtures whose experts are chosen by sigmoid scores plus a correction bias, from the groups whose best two add up to most.
// DeepSeek-V3.2 and GLM-5 (glm_moe_dsa) are V3 with sparse attention: an index in each layer selects the positions that are seen. GLM's index rotates neighbours
// instead of halves, and its layers may share the selection of the last one that has an index. Layers from num_hidden_layers on predict further tokens and are
// left alone.
#include <algorithm>

#include "model/architectures/registry.h"
#include "model/modules/mla.h"

namespace ridge {
namespace {

MoeOptions read_mixture(const Config& config, ActKind act) {
  const int n_experts = config.integer("n_routed_experts", 1, 1 << 16), n_groups = config.integer_or("n_group", 1, 1, 1 << 16);
  const int d_expert = config.integer("moe_intermediate_size", 1, 1 << 20);
  config.refuse_unless("scoring_func", "sigmoid");
  config.refuse_unless("topk_method", "noaux_tc");
  config.refuse_unless("moe_layer_freq", 1);
  return {.n_experts = n_experts, .top_k = config.integer("num_experts_per_tok", 1, 1 << 16), .d_ff = d_expert, .act = act, .gate = GateKind::sigmoid,
          .renormalize = config.flag_or("norm_topk_prob", true), .n_groups = n_groups, .top_groups = config.integer_or("topk_group", 1, 1, 1 << 16),
          .group_best = std::min(2, std::max(1, n_experts / n_groups)), .norm_eps = 1e-20f,
          .scale = static_cast<float>(config.number_or("routed_scaling_factor", 2.5, 0, 1e6)),
          .choice_bias = "gate.e_score_correction_bias", .shared = "shared_experts.", .d_shared = d_expert * config.integer_or("n_shared_experts", 1, 1, 1 << 10)};
}

// Which layers have a mixture: those that mlp_layer_types calls sparse, or all after the first ones.
std::vector<bool> read_sparse_ffn(const Config& config, int n_layers) {
  std::vector<bool> sparse(static_cast<size_t>(n_layers));
  const bool listed = config.has("mlp_layer_types");
  const std::vector<std::string> types = listed ? config.texts("mlp_layer_types", sparse.size()) : std::vector<std::string>{};
  const int n_dense = config.integer_or("first_k_dense_replace", 3, 0, 1 << 20);
  for (int i = 0; i < n_layers; i++) {
    const auto at = static_cast<size_t>(i);
    if (listed && types[at] != "dense" && types[at] != "sparse") config.refuse("mlp_layer_types", "only dense and sparse are supported");
    sparse[at] = listed ? types[at] == "sparse" : i >= n_dense;
  }
  return sparse;
}

// Which layers have an index of their own: all, or as GLM's config says.
std::vector<bool> read_indexed(const Config& config, int n_layers) {
  std::vector<bool> indexed(static_cast<size_t>(n_layers), true);
  const int every = config.integer_or("index_topk_freq", 1, 1, 1 << 20), offset = config.integer_or("index_skip_topk_offset", 2, 0, 1 << 20);
  std::string pattern;
  if (config.has("indexer_types"))
    for (const std::string& type : config.texts("indexer_types", indexed.size())) pattern += type == "full" ? 'F' : type == "shared" ? 'S' : '?';
  else if (config.has("index_topk_pattern")) pattern = config.text("index_topk_pattern");
  else
    for (int i = 0; i < n_layers; i++) pattern += std::max(i - offset + 1, 0) % every == 0 ? 'F' : 'S';
  const char* const key = config.has("indexer_types") ? "indexer_types" : "index_topk_pattern";
  if (pattern.size() < indexed.size() || pattern[0] != 'F') config.refuse(key, "every layer needs full or shared, and the first one full");
  for (size_t i = 0; i < indexed.size(); i++) {
    if (pattern[i] != 'F' && pattern[i] != 'S') config.refuse(key, "only full (F) and shared (S) are supported");
    indexed[i] = pattern[i] == 'F';
  }
  return indexed;
}

void build(Construction& c, bool sparse, RopeStyle index_style, double eps) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.max_context = 4096, .eps = eps});
  const MlaShape m = read_mla_shape(config);
  const ActKind act = read_activation(config, "hidden_act", "silu");
  const MoeOptions mixture = read_mixture(config, act);
  const std::vector<bool> has_mixture = read_sparse_ffn(config, s.n_layers);
  const std::vector<bool> indexed = sparse ? read_indexed(config, s.n_layers) : std::vector<bool>(static_cast<size_t>(s.n_layers));
  config.refuse_unless("mlp_bias", false);
  if (sparse && m.q_rank == 0) config.refuse("q_lora_rank", "the index of sparse attention reads the low rank of the queries");

  c.embed("model.embed_tokens.weight", s);
  MlaOptions attention{.rope = add_mla_rope(c, s, m), .style = config.flag_or("rope_interleave", true) ? RopeStyle::interleaved : RopeStyle::half,
                       .scale = mla_scale(config, m), .bias = config.flag_or("attention_bias", false), .sparse = sparse};
  if (sparse) {
    attention.index_heads = config.integer("index_n_heads", 1, 4096);
    attention.index_dim = config.integer("index_head_dim", m.n_rot, 4096);
    attention.index_top_k = config.integer("index_topk", 1, 1 << 20);
    attention.index_style = index_style;
  }
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    attention.index = indexed[static_cast<size_t>(i)];
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s), .module = make_mla(c, p + "self_attn.", s, m, attention)},
                {.before = c.rms_norm(p + "post_attention_layernorm", s),
                 .module = has_mixture[static_cast<size_t>(i)] ? c.moe(p + "mlp.", s, mixture) : c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace

void build_deepseek_v3(Construction& c) { build(c, false, RopeStyle::half, 1e-6); }
void build_deepseek_v32(Construction& c) { build(c, true, RopeStyle::half, 1e-6); }
void build_glm_moe_dsa(Construction& c) { build(c, true, RopeStyle::interleaved, 1e-5); }

}  // namespace ridge
