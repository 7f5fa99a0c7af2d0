// Mixtures of experts. GGUF stacks the matrices of a layer's experts, [experts, rows, cols]; Hugging Face has them one by one, or stacked with gate and up in one.
#include "files/gguf/common.h"

namespace ridge {
namespace {

using enum Change;
using enum Numbers;
using enum KeyKind;

bool has_experts(const GgufKeys& keys) { return keys.integer("expert_count").value_or(0) > 0; }

// llama.cpp's numbers of router functions.
constexpr int64_t kSigmoid = 2;
constexpr const char* kSigmoidText = "2";

std::vector<GgufKey> expert_keys(std::string_view count) { return {{"expert_count", count}, {"expert_used_count", "num_experts_per_tok"}}; }

// The part of a DeepSeek-like mixture that its descendants share.
std::vector<GgufKey> deepseek_keys() {
  return expert_keys("n_routed_experts") + std::vector<GgufKey>{{"expert_feed_forward_length", "moe_intermediate_size"},
                                                                {"expert_shared_count", "n_shared_experts", integer, "0"},
                                                                {"expert_weights_scale", "routed_scaling_factor", number},
                                                                {"expert_weights_norm", "norm_topk_prob", boolean},
                                                                {"expert_group_count", "n_group"},
                                                                {"expert_group_used_count", "topk_group"},
                                                                {"leading_dense_block_count", "first_k_dense_replace", integer, "0"}};
}

std::vector<GgufName> mla_names() {
  return {{"blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj"},
          {"blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm"},
          {"blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj"},
          {"blk.{}.attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa"},
          {"blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm"},
          {"blk.{}.attn_k_b.weight", "model.layers.{}.self_attn.kv_b_proj.weight", k_b},
          {"blk.{}.attn_v_b.weight", "model.layers.{}.self_attn.kv_b_proj.weight", v_b},
          {"blk.{}.attn_kv_b", "model.layers.{}.self_attn.kv_b_proj", none, same, true}};
}

std::vector<GgufName> indexer_names() {
  return {{"blk.{}.indexer.k_norm", "model.layers.{}.self_attn.indexer.k_norm"},
          {"blk.{}.indexer.proj", "model.layers.{}.self_attn.indexer.weights_proj"},
          {"blk.{}.indexer.attn_k", "model.layers.{}.self_attn.indexer.wk"},
          {"blk.{}.indexer.attn_q_b", "model.layers.{}.self_attn.indexer.wq_b"}};
}

const std::vector<GgufKey> kIndexerKeys = {{"attention.indexer.head_count", "index_n_heads"}, {"attention.indexer.key_length", "index_head_dim"}, {"attention.indexer.top_k", "index_topk"}};

// MLA as llama.cpp counts it: one key/value head as wide as the latent and its rope part; the heads it unfolds to are the *_mla keys.
void write_mla(const Json& config, GgufPairs& pairs) {
  const int64_t rank = needed_count(config, "kv_lora_rank"), rope = needed_count(config, "qk_rope_head_dim");
  pairs.put("attention.head_count_kv", 1);
  pairs.put("attention.kv_lora_rank", rank);
  pairs.put("attention.q_lora_rank", count_in(config, "q_lora_rank").value_or(0));
  pairs.put("attention.key_length", rank + rope);
  pairs.put("attention.value_length", rank);
  pairs.put("attention.key_length_mla", needed_count(config, "qk_nope_head_dim") + rope);
  pairs.put("attention.value_length_mla", needed_count(config, "v_head_dim"));
  pairs.put("rope.dimension_count", rope);
  const Json section = value_in(config, "rope_parameters");
  if (const Json v = section.is_object() ? value_in(section, "mscale_all_dim") : Json(); v.is_number()) pairs.put("rope.scaling.yarn_log_multiplier", 0.1 * v.get<double>());
}

void write_mla_sigmoid(const Json& config, GgufPairs& pairs) {
  write_mla(config, pairs);
  pairs.put("expert_gating_func", kSigmoid);
}

void read_mla(const GgufKeys& keys, Json& config) {
  const int64_t rope = keys.needed("rope.dimension_count", 1, 1 << 16);
  config["kv_lora_rank"] = keys.needed("attention.kv_lora_rank", 1, 1 << 20);
  const int64_t q_rank = keys.integer("attention.q_lora_rank").value_or(0);
  config["q_lora_rank"] = q_rank > 0 ? Json(q_rank) : Json();
  const bool split = keys.integer("attention.key_length_mla").has_value();
  const int64_t k = keys.needed(split ? "attention.key_length_mla" : "attention.key_length", rope + 1, 1 << 16);
  config["qk_rope_head_dim"] = config["head_dim"] = rope;
  config["qk_nope_head_dim"] = k - rope;
  config["qk_head_dim"] = k;
  config["v_head_dim"] = keys.needed(split ? "attention.value_length_mla" : "attention.value_length", 1, 1 << 16);
  config["num_key_value_heads"] = config["num_attention_heads"];
  if (config.contains("rope_parameters")) {
    Json& section = config["rope_parameters"];
    section.erase("partial_rotary_factor");
    if (const auto v = keys.number("rope.scaling.yarn_log_multiplier")) section["mscale"] = section["mscale_all_dim"] = *v / 0.1;
  }
  if (!config.contains("norm_topk_prob")) config["norm_topk_prob"] = false;
  const bool grouped = keys.integer("expert_group_count").value_or(1) > 1;
  if (config["model_type"] == "deepseek_v2") config["topk_method"] = grouped ? "group_limited_greedy" : "greedy";
}

bool has_sigmoid(const GgufKeys& keys) { return keys.integer("expert_gating_func").value_or(0) == kSigmoid; }

// gpt-oss names its experts as one stack with gate and up in turns; in a file they are read one by one.
std::vector<GgufName> gpt_oss_names() {
  return {{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
          {"blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"},
          {"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router"},
          {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"},
          {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"},
          {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"},
          {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", transposed_even},
          {"blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", transposed_odd},
          {"blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.down_proj", transposed},
          {"blk.{}.ffn_gate_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", even},
          {"blk.{}.ffn_up_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", odd},
          {"blk.{}.ffn_down_exps.bias", "model.layers.{}.mlp.experts.down_proj_bias"}};
}

void read_gpt_oss(const GgufKeys&, Json& config) {
  if (!config.contains("layer_types")) config["layer_types"] = periodic_layers(needed_count(config, "num_hidden_layers"), 2);
  if (config["rope_parameters"]["rope_type"] == "yarn") config["rope_parameters"]["truncate"] = false;
}

std::vector<GgufName> llama4_names() {
  return {{"blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"},
          {"blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"},
          {"blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"},
          {"blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router"},
          {"blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.{}.gate_proj"},
          {"blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.{}.up_proj"},
          {"blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.{}.down_proj"},
          {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.feed_forward.experts.gate_up_proj", transposed_first_half},
          {"blk.{}.ffn_up_exps.weight", "model.layers.{}.feed_forward.experts.gate_up_proj", transposed_second_half},
          {"blk.{}.ffn_down_exps.weight", "model.layers.{}.feed_forward.experts.down_proj", transposed},
          {"blk.{}.ffn_gate_shexp", "model.layers.{}.feed_forward.shared_expert.gate_proj"},
          {"blk.{}.ffn_up_shexp", "model.layers.{}.feed_forward.shared_expert.up_proj"},
          {"blk.{}.ffn_down_shexp", "model.layers.{}.feed_forward.shared_expert.down_proj"}};
}

void read_llama4(const GgufKeys& keys, Json& config) {
  const int64_t n_layers = needed_count(config, "num_hidden_layers"), step = keys.needed("interleave_moe_layer_step", 0, 1 << 16);
  config["layer_types"] = periodic_layers(n_layers, 4, "chunked_attention");
  config["no_rope_layers"] = config["moe_layers"] = Json::array();
  for (int64_t i = 0; i < n_layers; ++i) {
    config["no_rope_layers"].push_back((i + 1) % 4 != 0 ? 1 : 0);
    if (step > 0 && (i + 1) % step == 0) config["moe_layers"].push_back(i);
  }
}

std::vector<GgufName> qwen_shared_expert() {
  return {{"blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"},
          {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
          {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
          {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"}};
}

std::vector<GgufName> mixtral_experts() {
  return std::vector<GgufName>{{"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"}} +
         experts_at("model.layers.{}.block_sparse_moe.experts.{}.w1", "model.layers.{}.block_sparse_moe.experts.{}.w3", "model.layers.{}.block_sparse_moe.experts.{}.w2");
}

// Which layers are mixtures, by the router they have.
Json mlp_layer_types(const GgufKeys& keys, int64_t n_layers) {
  Json types = Json::array();
  for (int64_t i = 0; i < n_layers; ++i) types.push_back(keys.has_tensor("blk." + std::to_string(i) + ".ffn_gate_inp.weight") ? "sparse" : "dense");
  return types;
}
int64_t n_leading_dense(const Json& config) {
  const Json types = value_in(config, "mlp_layer_types");
  if (!types.is_array()) return count_in(config, "first_k_dense_replace").value_or(0);
  int64_t n = 0;
  while (n < static_cast<int64_t>(types.size()) && types[static_cast<size_t>(n)] == "dense") ++n;
  return n;
}

// MiMo-V2: layers with a window have twice the key/value heads; values are narrower than keys.
void write_mimo(const Json& config, GgufPairs& pairs) {
  const Json types = value_in(config, "layer_types"), rope = value_in(config, "rope_parameters");
  const int64_t n_kv = needed_count(config, "num_key_value_heads"), n_kv_local = count_in(config, "swa_num_key_value_heads").value_or(2 * n_kv);
  Json is_sliding = Json::array(), heads = Json::array();
  for (const Json& t : types) {
    is_sliding.push_back(t == "sliding_attention");
    heads.push_back(t == "sliding_attention" ? n_kv_local : n_kv);
  }
  pairs.put("attention.sliding_window_pattern", is_sliding);
  pairs.put("attention.head_count_kv", heads);
  pairs.put("attention.value_length", needed_count(config, "v_head_dim"));
  pairs.put("leading_dense_block_count", n_leading_dense(config));
  if (rope.is_object() && rope.contains("sliding_attention")) pairs.put("rope.freq_base_swa", rope["sliding_attention"].value("rope_theta", 10000.0));
}
void read_mimo(const GgufKeys& keys, Json& config) {
  const int64_t n = needed_count(config, "num_hidden_layers");
  const auto heads = keys.per_layer("attention.head_count_kv", n);
  for (size_t i = 0; i < heads.size() && i < config["layer_types"].size(); ++i)
    config[config["layer_types"][i] == "full_attention" ? "num_key_value_heads" : "swa_num_key_value_heads"] = heads[i];
  config["v_head_dim"] = keys.needed("attention.value_length", 1, 1 << 16);
  config["mlp_layer_types"] = mlp_layer_types(keys, n);
  Json local = config["rope_parameters"];
  local["rope_theta"] = keys.number("rope.freq_base_swa").value_or(10000.0);
  config["rope_parameters"] = {{"full_attention", config["rope_parameters"]}, {"sliding_attention", local}};
}

// Kimi Linear: delta attention in layers of no key/value heads, latent attention without positions in the others.
std::vector<GgufName> kimi_names() {
  return mla_names() + mixtral_experts() +
         std::vector<GgufName>{{"blk.{}.ssm_conv1d_q", "model.layers.{}.self_attn.q_conv1d"}, {"blk.{}.ssm_conv1d_k", "model.layers.{}.self_attn.k_conv1d"},
                               {"blk.{}.ssm_conv1d_v", "model.layers.{}.self_attn.v_conv1d"}, {"blk.{}.ssm_f_a", "model.layers.{}.self_attn.f_a_proj"},
                               {"blk.{}.ssm_f_b", "model.layers.{}.self_attn.f_b_proj"}, {"blk.{}.ssm_g_a", "model.layers.{}.self_attn.g_a_proj"},
                               {"blk.{}.ssm_g_b", "model.layers.{}.self_attn.g_b_proj"}, {"blk.{}.ssm_beta", "model.layers.{}.self_attn.b_proj"},
                               {"blk.{}.ssm_a", "model.layers.{}.self_attn.A_log", none, minus_exp}, {"blk.{}.ssm_dt.bias", "model.layers.{}.self_attn.dt_bias"},
                               {"blk.{}.ssm_norm", "model.layers.{}.self_attn.o_norm"}, {"blk.{}.exp_probs_b.bias", "model.layers.{}.block_sparse_moe.gate.e_score_correction_bias"},
                               {"blk.{}.ffn_gate_shexp", "model.layers.{}.block_sparse_moe.shared_experts.gate_proj"},
                               {"blk.{}.ffn_up_shexp", "model.layers.{}.block_sparse_moe.shared_experts.up_proj"},
                               {"blk.{}.ffn_down_shexp", "model.layers.{}.block_sparse_moe.shared_experts.down_proj"},
                               {"blk.{}.ffn_gate", "model.layers.{}.block_sparse_moe.gate_proj"}, {"blk.{}.ffn_up", "model.layers.{}.block_sparse_moe.up_proj"},
                               {"blk.{}.ffn_down", "model.layers.{}.block_sparse_moe.down_proj"}};
}
void write_kimi(const Json& config, GgufPairs& pairs) {
  write_mla_sigmoid(config, pairs);
  const Json section = value_in(config, "linear_attn_config"), types = value_in(config, "layer_types"), full = section.is_object() ? value_in(section, "full_attn_layers") : Json();
  const auto size = [&](const char* key, std::string_view own) { return section.is_object() && section.contains(key) ? needed_count(section, key) : needed_count(config, own); };
  pairs.put("ssm.conv_kernel", size("short_conv_kernel_size", "linear_conv_kernel_dim"));
  pairs.put("kda.head_dim", size("head_dim", "linear_head_dim"));
  pairs.put("leading_dense_block_count", n_leading_dense(config));
  Json heads = Json::array();
  for (int64_t i = 0; i < needed_count(config, "num_hidden_layers"); ++i) {
    bool is_full = types.is_array() && static_cast<size_t>(i) < types.size() && types[static_cast<size_t>(i)] == "full_attention";
    if (full.is_array())
      for (const Json& layer : full) is_full |= layer == i + 1;
    heads.push_back(is_full ? 1 : 0);
  }
  pairs.put("attention.head_count_kv", heads);
}
void read_kimi(const GgufKeys& keys, Json& config) {
  config["layer_types"] = layer_types_by_kv_heads(keys, config, "full_attention", "linear_attention");
  read_mla(keys, config);
  config["linear_num_heads"] = config["num_attention_heads"];
  config["mlp_layer_types"] = mlp_layer_types(keys, needed_count(config, "num_hidden_layers"));
  config.erase("norm_topk_prob");
}

void write_ernie_moe(const Json& config, GgufPairs& pairs) {
  const int64_t n = count_in(config, "moe_num_shared_experts").value_or(0);
  pairs.put("expert_shared_count", n);
  if (n > 0) pairs.put("expert_shared_feed_forward_length", n * needed_count(config, "moe_intermediate_size"));
}

void read_ernie_moe(const GgufKeys&, Json& config) { config["moe_layer_end_index"] = needed_count(config, "num_hidden_layers") - 1; }

}  // namespace

std::vector<GgufArchitecture> mixture_architectures() {
  const std::vector<GgufKey> qwen_keys = expert_keys("num_experts|num_local_experts") + std::vector<GgufKey>{{"expert_feed_forward_length", "moe_intermediate_size"}};
  const std::vector<GgufKey> shared_key = {{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}};
  const std::vector<GgufKey> sigmoid_key = {{"expert_gating_func", "", integer, kSigmoidText}};
  const std::vector<GgufName> granite_names =
      interleaved_heads() + std::vector<GgufName>{{"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"},
                                                  {"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.input_linear", first_half},
                                                  {"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.input_linear", second_half},
                                                  {"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear"}};
  const std::vector<GgufKey> granite_keys = expert_keys("num_local_experts") + std::vector<GgufKey>{{"attention.scale", "attention_multiplier", number},
                                                                                                     {"embedding_scale", "embedding_multiplier", number},
                                                                                                     {"residual_scale", "residual_multiplier", number},
                                                                                                     {"logit_scale", "logits_scaling", number}};
  return {
      {.gguf = "llama", .model_type = "mixtral", .class_name = "MixtralForCausalLM", .names = interleaved_heads() + mixtral_experts(), .keys = expert_keys("num_local_experts"), .known = kSilu,
       .applies = has_experts},
      {.gguf = "qwen2moe", .model_type = "qwen2_moe", .class_name = "Qwen2MoeForCausalLM", .names = qwen_shared_expert(), .keys = qwen_keys + shared_key,
       .known = R"({"hidden_act": "silu", "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": []})"},
      {.gguf = "qwen3moe", .model_type = "qwen3_moe", .class_name = "Qwen3MoeForCausalLM", .keys = qwen_keys,
       .known = R"({"hidden_act": "silu", "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []})"},
      {.gguf = "olmoe", .model_type = "olmoe", .class_name = "OlmoeForCausalLM", .keys = expert_keys("num_experts"), .known = R"({"hidden_act": "silu", "norm_topk_prob": false})"},
      {.gguf = "granitemoe", .model_type = "granitemoe", .class_name = "GraniteMoeForCausalLM", .names = granite_names, .keys = granite_keys, .known = kSilu},
      {.gguf = "deepseek2", .model_type = "deepseek_v3", .class_name = "DeepseekV3ForCausalLM", .names = mla_names(), .keys = deepseek_keys(), .known = R"({"hidden_act": "silu", "rope_interleave": true})",
       .read = read_mla, .write = write_mla_sigmoid, .applies = has_sigmoid},
      {.gguf = "deepseek2", .model_type = "deepseek_v2", .class_name = "DeepseekV2ForCausalLM", .names = mla_names(), .keys = deepseek_keys(), .known = kSilu, .read = read_mla, .write = write_mla},
      {.gguf = "deepseek32", .model_type = "deepseek_v32", .class_name = "DeepseekV32ForCausalLM", .names = mla_names() + indexer_names(), .keys = deepseek_keys() + kIndexerKeys, .known = kSilu,
       .read = read_mla, .write = write_mla_sigmoid},
      {.gguf = "glm-dsa", .model_type = "glm_moe_dsa", .class_name = "GlmMoeDsaForCausalLM", .names = mla_names() + indexer_names(), .keys = deepseek_keys() + kIndexerKeys, .known = kSilu,
       .read = read_mla, .write = write_mla_sigmoid},
      {.gguf = "dots1", .model_type = "dots1", .class_name = "Dots1ForCausalLM", .keys = deepseek_keys() + sigmoid_key, .known = kSilu},
      {.gguf = "glm4moe", .model_type = "glm4_moe", .class_name = "Glm4MoeForCausalLM", .names = {{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"}},
       .keys = deepseek_keys() + sigmoid_key, .known = kSilu,
       .read = [](const GgufKeys& keys, Json& config) {
         config["use_qk_norm"] = keys.has_tensor("blk.0.attn_q_norm.weight");
         config["num_hidden_layers"] = needed_count(config, "num_hidden_layers") - keys.integer("nextn_predict_layers").value_or(0);
       }},
      {.gguf = "ernie4_5-moe", .model_type = "ernie4_5_moe", .class_name = "Ernie4_5_MoeForCausalLM",
       .names = {{"blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.moe_statics.e_score_correction_bias"}},
       .keys = {{"expert_count", "moe_num_experts"}, {"expert_used_count", "moe_k"}, {"interleave_moe_layer_step", "moe_layer_interval", integer, "1"},
                {"leading_dense_block_count", "moe_layer_start_index", integer, "0"}, {"expert_feed_forward_length", "moe_intermediate_size"}, {"expert_shared_count", "moe_num_shared_experts"}},
       .known = R"({"hidden_act": "silu", "use_bias": false})", .read = read_ernie_moe, .write = write_ernie_moe},
      {.gguf = "minimax-m2", .model_type = "minimax_m2", .class_name = "MiniMaxM2ForCausalLM",
       .names = mixtral_experts() + std::vector<GgufName>{{"blk.{}.exp_probs_b.bias", "model.layers.{}.block_sparse_moe.e_score_correction_bias"}},
       .keys = expert_keys("num_local_experts") + sigmoid_key + std::vector<GgufKey>{{"expert_feed_forward_length", "intermediate_size"}}, .known = kSilu},
      {.gguf = "mimo2", .model_type = "mimo_v2_flash", .class_name = "MiMoV2FlashForCausalLM", .names = {{"blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.attention_sink_bias"}},
       .keys = expert_keys("n_routed_experts") + sigmoid_key + std::vector<GgufKey>{{"expert_feed_forward_length", "moe_intermediate_size"}, {"attention.head_count_kv", ""},
                                                                                     {"attention.value_scale", "attention_value_scale", number}},
       .known = R"({"hidden_act": "silu", "norm_topk_prob": true, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0})", .read = read_mimo, .write = write_mimo},
      {.gguf = "kimi-linear", .model_type = "kimi_linear", .class_name = "KimiLinearForCausalLM", .names = kimi_names(),
       .keys = {{"context_length", "model_max_length|max_position_embeddings"}, {"expert_count", "num_experts"}, {"expert_used_count", "num_experts_per_token|num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"}, {"expert_shared_count", "num_shared_experts"}, {"expert_weights_scale", "routed_scaling_factor", number},
                {"attention.head_count_kv", ""}, {"ssm.conv_kernel", "linear_conv_kernel_dim"}, {"kda.head_dim", "linear_head_dim"}},
       .known = R"({"hidden_act": "silu", "moe_renormalize": true})", .read = read_kimi, .write = write_kimi, .has_rope = false},
      {.gguf = "gpt-oss", .model_type = "gpt_oss", .class_name = "GptOssForCausalLM", .names = gpt_oss_names(),
       .keys = expert_keys("num_local_experts") + std::vector<GgufKey>{{"expert_feed_forward_length", "intermediate_size"}}, .known = R"({"hidden_act": "silu", "attention_bias": true})", .read = read_gpt_oss},
      {.gguf = "llama4", .model_type = "llama4_text", .class_name = "Llama4ForCausalLM", .names = llama4_names(),
       .keys = expert_keys("num_local_experts") + std::vector<GgufKey>{{"feed_forward_length", "intermediate_size_mlp"}, {"expert_feed_forward_length", "intermediate_size"},
                                                                        {"interleave_moe_layer_step", "interleave_moe_layer_step"}},
       .known = R"({"hidden_act": "silu", "attention_chunk_size": 8192, "attn_temperature_tuning": true, "floor_scale": 8192, "attn_scale": 0.1, "use_qk_norm": true})", .read = read_llama4},
  };
}

}  // namespace ridge
