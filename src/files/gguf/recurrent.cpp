// State spaces, gated delta nets and short convolutions, alone and beside attention. Layers that are not attention have 0 key/value heads in the metadata's list;
// A is stored as -exp(A_log), a convolution without its middle dimension.
#include "files/gguf/common.h"

namespace ridge {
namespace {

using enum Change;
using enum Numbers;
using enum KeyKind;

// A mamba mixer's tensors below `p`: "backbone.layers.{}.mixer." or "model.layers.{}.mamba.".
std::vector<GgufName> mamba_names(const std::string& p) {
  return {{"blk.{}.ssm_in", p + "in_proj"},
          {"blk.{}.ssm_conv1d.weight", p + "conv1d.weight", squeeze},
          {"blk.{}.ssm_conv1d.bias", p + "conv1d.bias"},
          {"blk.{}.ssm_x", p + "x_proj"},
          {"blk.{}.ssm_dt", p + "dt_proj"},
          {"blk.{}.ssm_a", p + "A_log", none, minus_exp},
          {"blk.{}.ssm_d", p + "D"},
          {"blk.{}.ssm_dt_norm", p + "dt_layernorm"},
          {"blk.{}.ssm_b_norm", p + "b_layernorm"},
          {"blk.{}.ssm_c_norm", p + "c_layernorm"},
          {"blk.{}.ssm_out", p + "out_proj"}};
}

std::vector<GgufName> mamba2_names(const std::string& p) {
  return {{"blk.{}.ssm_in", p + "in_proj"},
          {"blk.{}.ssm_conv1d.weight", p + "conv1d.weight", squeeze},
          {"blk.{}.ssm_conv1d.bias", p + "conv1d.bias"},
          {"blk.{}.ssm_dt.bias", p + "dt_bias"},
          {"blk.{}.ssm_a", p + "A_log", column, minus_exp},
          {"blk.{}.ssm_d", p + "D", column},
          {"blk.{}.ssm_norm", p + "norm", groups},
          {"blk.{}.ssm_out", p + "out_proj"}};
}

std::vector<GgufName> backbone_names() { return {{"token_embd", "backbone.embeddings"}, {"output_norm", "backbone.norm_f"}, {"blk.{}.attn_norm", "backbone.layers.{}.norm"}}; }

std::vector<GgufName> jamba_mlp_names() {
  return {{"output_norm", "model.final_layernorm"},
          {"blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"},
          {"blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"},
          {"blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"}};
}

// llama.cpp wants these even where they mean nothing.
const std::vector<GgufKey> kNoAttention = {{"context_length", "", integer, "1048576"}, {"feed_forward_length", "", integer, "0"}, {"attention.head_count", "", integer, "0"}, {"attention.head_count_kv", "", integer, "0"},
                                           {"attention.key_length", "", integer, nullptr}};

const std::vector<GgufName> kMlpNorm = {{"blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm"}};
const std::vector<GgufName> kFalconMlpNorm = {{"blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm.weight"}};      // without a suffix: so llama.cpp has it

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void write_mamba(const Json& config, GgufPairs& pairs) {
  const int64_t d = needed_count(config, "hidden_size");
  pairs.put("ssm.inner_size", count_in(config, "intermediate_size").value_or(count_in(config, "expand").value_or(2) * d));
  pairs.put("ssm.time_step_rank", count_in(config, "time_step_rank").value_or(ceil_div(d, 16)));
}
void read_mamba(const GgufKeys& keys, Json& config) {
  const int64_t inner = keys.needed("ssm.inner_size", 1, 1 << 30);
  config["intermediate_size"] = inner;
  config["expand"] = inner / needed_count(config, "hidden_size");
  config["time_step_rank"] = keys.needed("ssm.time_step_rank", 1, 1 << 30);
  config["use_conv_bias"] = keys.has_tensor("blk.0.ssm_conv1d.bias");
}

void write_mamba2(const Json& config, GgufPairs& pairs) {
  const int64_t inner = count_in(config, "expand").value_or(2) * needed_count(config, "hidden_size");
  pairs.put("ssm.inner_size", inner);
  pairs.put("ssm.time_step_rank", count_in(config, "num_heads").value_or(inner / needed_count(config, "head_dim")));
}
void read_mamba2(const GgufKeys& keys, Json& config) {
  const int64_t inner = keys.needed("ssm.inner_size", 1, 1 << 30), n_heads = keys.needed("ssm.time_step_rank", 1, inner);
  config["num_heads"] = n_heads;
  config["head_dim"] = inner / n_heads;
  config["expand"] = inner / needed_count(config, "hidden_size");
  config["use_conv_bias"] = keys.has_tensor("blk.0.ssm_conv1d.bias");
}

// Which layers are attention, by whatever way a configuration says it.
std::vector<bool> attention_layers(const Json& config) {
  const Json types = value_in(config, "layer_types|layers_block_type"), indices = value_in(config, "attn_layer_indices");
  std::vector<bool> is;
  if (types.is_array()) {
    for (const Json& t : types) is.push_back(t == "attention" || t == "full_attention");
    return is;
  }
  const int64_t n = needed_count(config, "num_hidden_layers"), period = count_in(config, "attn_layer_period").value_or(0), offset = count_in(config, "attn_layer_offset").value_or(0);
  for (int64_t i = 0; i < n; ++i) {
    bool found = period > 0 && i % period == offset;
    if (indices.is_array())
      for (const Json& index : indices) found |= index == i;
    is.push_back(found);
  }
  return is;
}

// A period and an offset that give these layers.
void set_period(Json& config, const char* period, const char* offset, const std::vector<int64_t>& layers, int64_t n_layers) {
  if (layers.empty()) return;
  config[offset] = layers[0];
  config[period] = layers.size() > 1 ? layers[1] - layers[0] : n_layers;
}

void write_jamba(const Json& config, GgufPairs& pairs) {
  const int64_t d = needed_count(config, "hidden_size");
  pairs.put("ssm.inner_size", needed_count(config, "mamba_expand") * d);
  pairs.put("ssm.time_step_rank", count_in(config, "mamba_dt_rank").value_or(ceil_div(d, 16)));
  pairs.put("attention.head_count_kv", kv_heads_by_layer_types(config, attention_layers(config)));
}
void read_jamba(const GgufKeys& keys, Json& config) {
  const int64_t n = needed_count(config, "num_hidden_layers");
  config["mamba_expand"] = keys.needed("ssm.inner_size", 1, 1 << 30) / needed_count(config, "hidden_size");
  config["mamba_dt_rank"] = keys.needed("ssm.time_step_rank", 1, 1 << 30);
  const auto heads = keys.per_layer("attention.head_count_kv", n);
  std::vector<int64_t> attention, experts;
  for (int64_t i = 0; i < n; ++i) {
    if (i < static_cast<int64_t>(heads.size()) && heads[static_cast<size_t>(i)] > 0) attention.push_back(i);
    if (keys.has_tensor("blk." + std::to_string(i) + ".ffn_gate_inp.weight")) experts.push_back(i);
  }
  set_period(config, "attn_layer_period", "attn_layer_offset", attention, n);
  set_period(config, "expert_layer_period", "expert_layer_offset", experts, n);
}

const std::vector<GgufKey> kMambaKeys = {{"ssm.conv_kernel", "mamba_d_conv", integer, "4"}, {"ssm.state_size", "mamba_d_state"}, {"ssm.group_count", "mamba_n_groups"}, {"ssm.time_step_rank", "mamba_n_heads"}};

void write_granite_hybrid(const Json& config, GgufPairs& pairs) {
  pairs.put("ssm.inner_size", needed_count(config, "mamba_n_heads") * needed_count(config, "mamba_d_head"));
  pairs.put("attention.head_count_kv", kv_heads_by_layer_types(config, attention_layers(config)));
  pairs.put("rope.scaling.finetuned", config.value("model_type", "") == "bamba" || config.value("position_embedding_type", Json()) == "rope");
}
void read_granite_hybrid(const GgufKeys& keys, Json& config) {
  const int64_t inner = keys.needed("ssm.inner_size", 1, 1 << 30), n_heads = keys.needed("ssm.time_step_rank", 1, inner);
  config["mamba_d_head"] = inner / n_heads;
  config["mamba_expand"] = inner / needed_count(config, "hidden_size");
  config["mamba_conv_bias"] = keys.has_tensor("blk.0.ssm_conv1d.bias") || keys.has_tensor("blk.1.ssm_conv1d.bias");
  const Json types = layer_types_by_kv_heads(keys, config, "full_attention", "linear_attention");
  if (config["model_type"] == "bamba") {
    config["attn_layer_indices"] = Json::array();
    for (size_t i = 0; i < types.size(); ++i)
      if (types[i] == "full_attention") config["attn_layer_indices"].push_back(i);
  } else {
    config["layer_types"] = types;
    config["position_embedding_type"] = keys.boolean("rope.scaling.finetuned").value_or(true) ? Json("rope") : Json();
  }
}

// Falcon-H1: what its configuration multiplies activations by is in the weights of a file.
float falcon_factor(const Json& config, std::string_view name, int64_t row) {
  const auto number = [&](std::string_view key) { return static_cast<float>(value_in(config, key).is_number() ? value_in(config, key).get<double>() : 1.0); };
  const auto item = [&](std::string_view key, size_t i) {
    const Json list = value_in(config, key);
    return static_cast<float>(list.is_array() && i < list.size() && list[i].is_number() ? list[i].get<double>() : 1.0);
  };
  const auto is = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (is("down_proj")) return item("mlp_multipliers", 1);
  if (is("gate_proj")) return item("mlp_multipliers", 0);
  if (is("k_proj")) return number("key_multiplier") * number("attention_in_multiplier");
  if (is("q_proj") || is("v_proj")) return number("attention_in_multiplier");
  if (is("o_proj")) return number("attention_out_multiplier");
  if (is("mamba.out_proj")) return number("ssm_out_multiplier");
  if (is("lm_head")) return number("lm_head_multiplier");
  if (is("embed_tokens")) return number("embedding_multiplier");
  if (!is("mamba.in_proj")) return 1.0f;
  // Rows: z, x, B, C, dt.
  const int64_t inner = needed_count(config, "mamba_d_ssm"), state = needed_count(config, "mamba_n_groups") * needed_count(config, "mamba_d_state");
  const int64_t ends[] = {inner, 2 * inner, 2 * inner + state, 2 * inner + 2 * state};
  size_t part = 0;
  while (part < 4 && row >= ends[part]) ++part;
  return number("ssm_in_multiplier") * item("ssm_multipliers", part);
}

void write_falcon(const Json& config, GgufPairs& pairs) { pairs.put("ssm.inner_size", needed_count(config, "mamba_d_ssm")); }
void read_falcon(const GgufKeys& keys, Json& config) {
  const int64_t inner = keys.needed("ssm.inner_size", 1, 1 << 30), n_heads = keys.needed("ssm.time_step_rank", 1, inner);
  config["mamba_d_ssm"] = inner;
  config["mamba_d_head"] = inner / n_heads;
  config["mamba_conv_bias"] = keys.has_tensor("blk.0.ssm_conv1d.bias");
  config["mamba_rms_norm"] = keys.has_tensor("blk.0.ssm_norm.weight");
}

// Nemotron-H: each layer is one of mamba, attention and MLP.
void write_nemotron(const Json& config, GgufPairs& pairs) {
  Json types = value_in(config, "layers_block_type");
  if (const Json pattern = value_in(config, "hybrid_override_pattern"); pattern.is_string() && !types.is_array()) {
    types = Json::array();
    for (const char c : pattern.get<std::string>()) types.push_back(c == 'M' ? "linear_attention" : c == '*' ? "full_attention" : "mlp");
  }
  const int64_t n_kv = needed_count(config, "num_key_value_heads"), d_ff = needed_count(config, "intermediate_size");
  Json heads = Json::array(), widths = Json::array();
  for (const Json& t : types) {
    heads.push_back(t == "full_attention" || t == "attention" ? n_kv : 0);
    widths.push_back(t == "mlp" ? d_ff : 0);
  }
  pairs.put("block_count", types.size());
  pairs.put("attention.head_count_kv", heads);
  pairs.put("feed_forward_length", widths);
  pairs.put("ssm.inner_size", needed_count(config, "mamba_num_heads") * needed_count(config, "mamba_head_dim"));
}
void read_nemotron(const GgufKeys& keys, Json& config) {
  const int64_t n = needed_count(config, "num_hidden_layers"), inner = keys.needed("ssm.inner_size", 1, 1 << 30), n_heads = keys.needed("ssm.time_step_rank", 1, inner);
  config["mamba_head_dim"] = inner / n_heads;
  const auto heads = keys.per_layer("attention.head_count_kv", n), widths = keys.per_layer("feed_forward_length", n);
  config["layers_block_type"] = Json::array();
  for (size_t i = 0; i < static_cast<size_t>(n); ++i)
    config["layers_block_type"].push_back(i < heads.size() && heads[i] > 0 ? "full_attention" : i < widths.size() && widths[i] > 0 ? "mlp" : "linear_attention");
}

void write_lfm2(const Json& config, GgufPairs& pairs) {
  pairs.put("attention.head_count_kv", kv_heads_by_layer_types(config, attention_layers(config)));
  int64_t width = needed_count(config, "block_ff_dim|intermediate_size");
  if (config.value("block_auto_adjust_ff_dim", Json(true)) == true) {
    const int64_t multiple = count_in(config, "block_multiple_of").value_or(256);
    const Json by = value_in(config, "block_ffn_dim_multiplier");
    width = 2 * width / 3;
    if (by.is_number()) width = static_cast<int64_t>(by.get<double>() * static_cast<double>(width));
    width = ceil_div(width, multiple) * multiple;
  }
  pairs.put("feed_forward_length", width);
}
void read_lfm2(const GgufKeys& keys, Json& config) { config["layer_types"] = layer_types_by_kv_heads(keys, config, "full_attention", "conv"); }

// Gated delta nets: Qwen3-Next and Qwen3.5.
std::vector<GgufName> delta_norms() {
  return {{"output_norm", "model.norm", none, plus_one},
          {"blk.{}.attn_norm", "model.layers.{}.input_layernorm", none, plus_one},
          {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm", none, plus_one},
          {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", none, plus_one},
          {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", none, plus_one},
          {"blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm"},
          {"blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"},
          {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
          {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
          {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"}};
}
std::vector<GgufName> qwen3_next_names() {
  return delta_norms() + std::vector<GgufName>{{"blk.{}.attn_qkv.weight", "model.layers.{}.linear_attn.in_proj_qkvz.weight", qkv_of_qkvz},
                                               {"blk.{}.attn_gate.weight", "model.layers.{}.linear_attn.in_proj_qkvz.weight", z_of_qkvz},
                                               {"blk.{}.ssm_in", "model.layers.{}.linear_attn.in_proj_qkvz", none, same, true},
                                               {"blk.{}.ssm_ba", "model.layers.{}.linear_attn.in_proj_ba"},
                                               {"blk.{}.ssm_conv1d.weight", "model.layers.{}.linear_attn.conv1d.weight", squeeze},
                                               {"blk.{}.ssm_dt.bias", "model.layers.{}.linear_attn.dt_bias"},
                                               {"blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log", none, minus_exp},
                                               {"blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj"}};
}
std::vector<GgufName> qwen3_5_names() {
  return delta_norms() + std::vector<GgufName>{{"blk.{}.attn_qkv", "model.layers.{}.linear_attn.in_proj_qkv", v_heads_after_qk},
                                               {"blk.{}.attn_gate", "model.layers.{}.linear_attn.in_proj_z", v_heads},
                                               {"blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b", v_heads},
                                               {"blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a", v_heads},
                                               {"blk.{}.ssm_conv1d.weight", "model.layers.{}.linear_attn.conv1d.weight", conv_v_heads},
                                               {"blk.{}.ssm_dt.bias", "model.layers.{}.linear_attn.dt_bias", v_heads},
                                               {"blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log", v_heads, minus_exp},
                                               {"blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj", v_heads_in_columns}};
}

const std::vector<GgufKey> kDeltaKeys = {{"ssm.conv_kernel", "linear_conv_kernel_dim"}, {"ssm.state_size", "linear_key_head_dim"}, {"ssm.group_count", "linear_num_key_heads"},
                                         {"ssm.time_step_rank", "linear_num_value_heads"}};
const std::vector<GgufKey> kDeltaExperts = {{"expert_count", "num_experts|num_local_experts"}, {"expert_used_count", "num_experts_per_tok"}, {"expert_feed_forward_length", "moe_intermediate_size"},
                                            {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}};

void write_delta(const Json& config, GgufPairs& pairs) {
  pairs.put("ssm.inner_size", needed_count(config, "linear_value_head_dim") * needed_count(config, "linear_num_value_heads"));
  const Json types = value_in(config, "layer_types");
  if (const auto period = period_of(types, "linear_attention"); period && *period > 0) {
    pairs.put("full_attention_interval", *period);
  } else if (types.is_array()) {
    Json recurrent = Json::array();
    for (const Json& t : types) recurrent.push_back(t == "linear_attention");
    pairs.put("attention.recurrent_layers", recurrent);
  }
}
// Text has one position for all three of Qwen3.5's axes, so how they share a head makes no difference to it.
void write_qwen3_5(const Json& config, GgufPairs& pairs) {
  write_delta(config, pairs);
  Json rope = value_in(config, "rope_parameters"), sections = rope.is_object() ? value_in(rope, "mrope_section") : Json();
  if (!sections.is_array() || sections.empty()) sections = Json::parse("[11, 11, 10]");
  while (sections.size() < 4) sections.push_back(0);
  pairs.put("rope.dimension_sections", sections);
}
void read_delta(const GgufKeys& keys, Json& config) {
  const int64_t n = needed_count(config, "num_hidden_layers") - keys.integer("nextn_predict_layers").value_or(0);
  config["num_hidden_layers"] = n;
  config["linear_value_head_dim"] = keys.needed("ssm.inner_size", 1, 1 << 30) / needed_count(config, "linear_num_value_heads");
  const auto recurrent = keys.per_layer("attention.recurrent_layers", n);
  config["layer_types"] = periodic_layers(n, keys.integer("full_attention_interval").value_or(4), "linear_attention");
  for (size_t i = 0; i < recurrent.size(); ++i) config["layer_types"][i] = recurrent[i] ? "linear_attention" : "full_attention";
}

}  // namespace

std::vector<GgufArchitecture> recurrent_architectures() {
  const std::vector<GgufName> granite_names =
      interleaved_heads() + mamba2_names("model.layers.{}.mamba.") +
      std::vector<GgufName>{{"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"},
                            {"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.input_linear", first_half},
                            {"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.input_linear", second_half},
                            {"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear"}};
  const std::vector<GgufName> granite_shared = {{"blk.{}.ffn_gate_shexp", "model.layers.{}.shared_mlp.input_linear", first_half},
                                                {"blk.{}.ffn_up_shexp", "model.layers.{}.shared_mlp.input_linear", second_half},
                                                {"blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"}};
  const std::vector<GgufName> granite_dense = {{"blk.{}.ffn_gate", "model.layers.{}.shared_mlp.input_linear", first_half},
                                               {"blk.{}.ffn_up", "model.layers.{}.shared_mlp.input_linear", second_half},
                                               {"blk.{}.ffn_down", "model.layers.{}.shared_mlp.output_linear"}};
  const std::vector<GgufKey> granite_keys = kMambaKeys + std::vector<GgufKey>{{"attention.scale", "attention_multiplier", number},
                                                                              {"embedding_scale", "embedding_multiplier", number},
                                                                              {"residual_scale", "residual_multiplier", number},
                                                                              {"logit_scale", "logits_scaling", number}};
  const std::vector<GgufKey> granite_experts = {{"expert_count", "num_local_experts"}, {"expert_used_count", "num_experts_per_tok"}, {"expert_shared_feed_forward_length", "shared_intermediate_size"}};
  const std::vector<GgufKey> eps_key = {{"attention.layer_norm_rms_epsilon", "layer_norm_epsilon", number, "1e-5"}};
  return {
      {.gguf = "mamba", .model_type = "mamba", .class_name = "MambaForCausalLM", .names = backbone_names() + mamba_names("backbone.layers.{}.mixer."),
       .keys = kNoAttention + eps_key + std::vector<GgufKey>{{"ssm.conv_kernel", "conv_kernel", integer, "4"}, {"ssm.state_size", "state_size", integer, "16"}, {"ssm.dt_b_c_rms", "", boolean, "false"}},
       .known = R"({"hidden_act": "silu", "use_bias": false})", .read = read_mamba, .write = write_mamba, .has_rope = false, .has_heads = false},
      {.gguf = "mamba2", .model_type = "mamba2", .class_name = "Mamba2ForCausalLM", .names = backbone_names() + mamba2_names("backbone.layers.{}.mixer."),
       .keys = kNoAttention + eps_key + std::vector<GgufKey>{{"ssm.conv_kernel", "conv_kernel", integer, "4"}, {"ssm.state_size", "state_size", integer, "128"}, {"ssm.group_count", "n_groups", integer, "1"}},
       .known = R"({"hidden_act": "silu", "use_bias": false})", .read = read_mamba2, .write = write_mamba2, .has_rope = false, .has_heads = false},
      {.gguf = "jamba", .model_type = "jamba", .class_name = "JambaForCausalLM",
       .names = kMlpNorm + mamba_names("model.layers.{}.mamba.") + jamba_mlp_names() + std::vector<GgufName>{{"blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router"}} +
                experts_at("model.layers.{}.feed_forward.experts.{}.gate_proj", "model.layers.{}.feed_forward.experts.{}.up_proj", "model.layers.{}.feed_forward.experts.{}.down_proj"),
       .keys = {{"ssm.conv_kernel", "mamba_d_conv", integer, "4"}, {"ssm.state_size", "mamba_d_state", integer, "16"}, {"expert_count", "num_experts"}, {"expert_used_count", "num_experts_per_tok"}},
       .known = R"({"hidden_act": "silu", "mamba_conv_bias": true, "mamba_proj_bias": false})", .read = read_jamba, .write = write_jamba, .has_rope = false},
      {.gguf = "granitehybrid", .model_type = "bamba", .class_name = "BambaForCausalLM", .names = kMlpNorm + interleaved_heads() + mamba2_names("model.layers.{}.mamba.") + jamba_mlp_names(), .keys = kMambaKeys,
       .known = R"({"hidden_act": "silu", "mamba_proj_bias": false})", .read = read_granite_hybrid, .write = write_granite_hybrid,
       .applies = [](const GgufKeys& keys) { return keys.integer("expert_count").value_or(0) == 0 && !keys.number("logit_scale"); }},
      {.gguf = "granitehybrid", .model_type = "granitemoehybrid", .class_name = "GraniteMoeHybridForCausalLM", .names = granite_names + granite_dense,
       .keys = granite_keys + std::vector<GgufKey>{{"feed_forward_length", "shared_intermediate_size"}}, .known = R"({"hidden_act": "silu", "mamba_proj_bias": false, "num_local_experts": 0})",
       .read = read_granite_hybrid, .write = write_granite_hybrid, .applies = [](const GgufKeys& keys) { return keys.integer("expert_count").value_or(0) == 0; },
       .suits = [](const Json& config) { return count_in(config, "num_local_experts").value_or(0) == 0; }},
      {.gguf = "granitehybrid", .model_type = "granitemoehybrid", .class_name = "GraniteMoeHybridForCausalLM", .names = granite_names + granite_shared, .keys = granite_keys + granite_experts,
       .known = R"({"hidden_act": "silu", "mamba_proj_bias": false})", .read = read_granite_hybrid, .write = write_granite_hybrid},
      {.gguf = "falcon-h1", .model_type = "falcon_h1", .class_name = "FalconH1ForCausalLM",
       .names = kFalconMlpNorm + mamba2_names("model.layers.{}.mamba.") + jamba_mlp_names(), .keys = kMambaKeys,
       .known = R"({"hidden_act": "silu", "mamba_proj_bias": false, "mamba_norm_before_gate": false})", .read = read_falcon, .write = write_falcon, .factor = falcon_factor,
       .folded = {"mlp_multipliers", "key_multiplier", "attention_in_multiplier", "attention_out_multiplier", "ssm_out_multiplier", "ssm_in_multiplier", "ssm_multipliers", "lm_head_multiplier",
                  "embedding_multiplier"}},
      {.gguf = "nemotron_h", .model_type = "nemotron_h", .class_name = "NemotronHForCausalLM",
       .names = backbone_names() + mamba2_names("backbone.layers.{}.mixer.") +
                std::vector<GgufName>{{"blk.{}.attn_q", "backbone.layers.{}.mixer.q_proj"}, {"blk.{}.attn_k", "backbone.layers.{}.mixer.k_proj"}, {"blk.{}.attn_v", "backbone.layers.{}.mixer.v_proj"},
                                      {"blk.{}.attn_output", "backbone.layers.{}.mixer.o_proj"}, {"blk.{}.ffn_up", "backbone.layers.{}.mixer.up_proj"}, {"blk.{}.ffn_down", "backbone.layers.{}.mixer.down_proj"}},
       .keys = eps_key + std::vector<GgufKey>{{"attention.layer_norm_epsilon", "layer_norm_epsilon", number, "1e-5"}, {"ssm.conv_kernel", "conv_kernel", integer, "4"}, {"ssm.state_size", "ssm_state_size"},
                                              {"ssm.group_count", "n_groups"}, {"ssm.time_step_rank", "mamba_num_heads"}},
       .known = R"({"mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "use_conv_bias": true, "use_bias": false, "mlp_bias": false})", .read = read_nemotron, .write = write_nemotron, .has_rope = false},
      {.gguf = "lfm2", .model_type = "lfm2", .class_name = "Lfm2ForCausalLM",
       .names = {{"token_embd_norm", "model.embedding_norm"}, {"blk.{}.attn_norm", "model.layers.{}.operator_norm"}, {"blk.{}.ffn_norm", "model.layers.{}.ffn_norm"},
                 {"blk.{}.attn_output", "model.layers.{}.self_attn.out_proj"}, {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"}, {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"},
                 {"blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1"}, {"blk.{}.ffn_up", "model.layers.{}.feed_forward.w3"}, {"blk.{}.ffn_down", "model.layers.{}.feed_forward.w2"},
                 {"blk.{}.shortconv.conv.weight", "model.layers.{}.conv.conv.weight", squeeze}, {"blk.{}.shortconv.in_proj", "model.layers.{}.conv.in_proj"},
                 {"blk.{}.shortconv.out_proj", "model.layers.{}.conv.out_proj"}},
       .keys = {{"attention.layer_norm_rms_epsilon", "norm_eps", number, "1e-5"}, {"shortconv.l_cache", "conv_L_cache"}},
       .known = R"({"conv_bias": false, "block_auto_adjust_ff_dim": false})", .read = read_lfm2, .write = write_lfm2},
      {.gguf = "qwen3next", .model_type = "qwen3_next", .class_name = "Qwen3NextForCausalLM", .names = qwen3_next_names(), .keys = kDeltaKeys + kDeltaExperts,
       .known = R"({"hidden_act": "silu", "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []})", .read = read_delta, .write = write_delta},
      {.gguf = "qwen35", .model_type = "qwen3_5_text", .class_name = "Qwen3_5ForCausalLM", .names = qwen3_5_names(), .keys = kDeltaKeys, .known = kSilu, .read = read_delta, .write = write_qwen3_5},
      {.gguf = "qwen35moe", .model_type = "qwen3_5_moe_text", .class_name = "Qwen3_5MoeForCausalLM", .names = qwen3_5_names(), .keys = kDeltaKeys + kDeltaExperts, .known = kSilu, .read = read_delta,
       .write = write_qwen3_5},
  };
}

}  // namespace ridge
