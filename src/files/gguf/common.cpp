#include "files/gguf/common.h"

namespace ridge {

const std::vector<GgufName>& common_names() {
  static const std::vector<GgufName> names = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"output", "lm_head"},
      {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
      {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
      {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
      {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
      {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
      {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
      {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
      {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
      {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
      {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
      {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
      // A mixture's experts, one by one or as transformers 5 stacks them.
      {"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"},
      {"blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias"},
      {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"},
      {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"},
      {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"},
      {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Change::first_half},
      {"blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Change::second_half},
      {"blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.down_proj"},
      {"blk.{}.ffn_gate_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Change::none, Numbers::same, true},
      {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"},
      {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"},
      {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"},
  };
  return names;
}

const std::vector<GgufKey>& common_keys() {
  static const std::vector<GgufKey> keys = {
      {"context_length", "max_position_embeddings"},
      {"embedding_length", "hidden_size"},
      {"block_count", "num_hidden_layers"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.head_count_kv", "num_key_value_heads|num_attention_heads"},
      {"attention.key_length", "head_dim"},
      {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KeyKind::number},
  };
  return keys;
}

std::vector<GgufName> experts_at(const std::string& gate, const std::string& up, const std::string& down) {
  return {{"blk.{}.ffn_gate_exps", gate}, {"blk.{}.ffn_up_exps", up}, {"blk.{}.ffn_down_exps", down}};
}

Json layer_types_by_kv_heads(const GgufKeys& keys, const Json& config, const char* attention, const char* other) {
  const auto heads = keys.per_layer("attention.head_count_kv", config.at("num_hidden_layers").get<int64_t>());
  Json types = Json::array();
  for (const int64_t n : heads) types.push_back(n > 0 ? attention : other);
  return types;
}

Json kv_heads_by_layer_types(const Json& config, const std::vector<bool>& is_attention) {
  const int64_t n = needed_count(config, "num_key_value_heads|num_attention_heads");
  Json heads = Json::array();
  for (const bool a : is_attention) heads.push_back(a ? n : 0);
  return heads;
}

Json periodic_layers(int64_t n_layers, int64_t period, const char* others) {
  Json list = Json::array();
  for (int64_t i = 0; i < n_layers; ++i) list.push_back(period > 0 && (i + 1) % period == 0 ? "full_attention" : others);
  return list;
}

std::optional<int64_t> period_of(const Json& layer_types, const char* others) {
  if (!layer_types.is_array()) return std::nullopt;
  const auto n = static_cast<int64_t>(layer_types.size());
  int64_t period = 0;
  for (int64_t i = 0; i < n && period == 0; ++i)
    if (layer_types[static_cast<size_t>(i)] == "full_attention") period = i + 1;
  return layer_types == periodic_layers(n, period, others) ? std::optional(period) : std::nullopt;
}

}  // namespace ridge
