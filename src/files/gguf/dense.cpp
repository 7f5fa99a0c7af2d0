// Decoders whose layers are attention and one MLP.
#include "files/gguf/common.h"

namespace ridge {
namespace {

using enum Change;
using enum Numbers;
using enum KeyKind;

// Gemma 2 and 3 have four norms a layer, OLMo 2 and 3 and EXAONE 4 only the two after their parts.
std::vector<GgufName> norms_after(Numbers numbers = same) {
  return {{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm", none, numbers},
          {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm", none, numbers},
          {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm", none, numbers}};
}

// Norms whose weight is stored with 1 added.
std::vector<GgufName> shifted_norms() {
  return {{"output_norm", "model.norm", none, plus_one},
          {"blk.{}.attn_norm", "model.layers.{}.input_layernorm", none, plus_one},
          {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", none, plus_one},
          {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", none, plus_one}};
}

bool has_window(const GgufKeys& keys) { return keys.integer("attention.sliding_window").value_or(0) > 0; }

// The 27B models scale queries by their share of the model's width, the others by the head's.
void read_gemma_scale(const GgufKeys& keys, Json& config) {
  const bool is_27b = needed_count(config, "num_hidden_layers") == (config["model_type"] == "gemma2" ? 46 : 62);
  config["query_pre_attn_scalar"] = is_27b ? Json(needed_count(config, "hidden_size") / needed_count(config, "num_attention_heads")) : config["head_dim"];
  if (config["model_type"] != "gemma3_text") {
    if (!config.contains("layer_types")) config["layer_types"] = periodic_layers(needed_count(config, "num_hidden_layers"), 2);
    return;
  }
  if (!config.contains("layer_types")) config["layer_types"] = periodic_layers(needed_count(config, "num_hidden_layers"), config.contains("sliding_window") ? 6 : 1);
  const Json local = {{"rope_type", "default"}, {"rope_theta", keys.number("rope.freq_base_swa").value_or(10000.0)}};
  config["rope_parameters"] = {{"full_attention", config["rope_parameters"]}, {"sliding_attention", local}};
}

// Layers of a sliding window are rotated without scaling.
void read_olmo3(const GgufKeys&, Json& config) {
  if (!config.contains("layer_types")) config["layer_types"] = periodic_layers(needed_count(config, "num_hidden_layers"), 4);
  const Json local = {{"rope_type", "default"}, {"rope_theta", config["rope_parameters"]["rope_theta"]}};
  config["rope_parameters"] = {{"full_attention", config["rope_parameters"]}, {"sliding_attention", local}};
}

void write_local_theta(const Json& config, GgufPairs& pairs) {
  const Json rope = value_in(config, "rope_parameters");
  if (rope.is_object() && rope.contains("sliding_attention")) pairs.put("rope.freq_base_swa", rope["sliding_attention"].value("rope_theta", 10000.0));
}

void read_smollm3(const GgufKeys&, Json& config) {
  config["no_rope_layers"] = Json::array();
  for (int64_t i = 0; i < needed_count(config, "num_hidden_layers"); ++i) config["no_rope_layers"].push_back((i + 1) % 4 != 0 ? 1 : 0);
}

void read_window_pattern(const GgufKeys&, Json& config) {
  if (!config.contains("layer_types")) config["layer_types"] = periodic_layers(needed_count(config, "num_hidden_layers"), 4);
}

// GPT-2 calls things by older names; both are there when a file was read.
void read_gpt2(const GgufKeys&, Json& config) {
  for (const auto& [name, old] : {std::pair{"max_position_embeddings", "n_positions"}, {"hidden_size", "n_embd"}, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}, {"intermediate_size", "n_inner"}})
    if (config.contains(name)) config[old] = Json(config[name]);
}
void write_gpt2(const Json& config, GgufPairs& pairs) {
  if (value_in(config, "intermediate_size|n_inner").is_null()) pairs.put("feed_forward_length", 4 * needed_count(config, "hidden_size|n_embd"));
}

void write_phi3(const Json& config, GgufPairs& pairs) {
  if (value_in(config, "sliding_window").is_null()) pairs.put("attention.sliding_window", 0);
}

// Ministral 3 scales its queries with the position, and its yarn has a temperature of its own.
void read_ministral3(const GgufKeys& keys, Json& config) {
  Json& rope = config["rope_parameters"];
  if (const auto v = keys.number("rope.scaling.yarn_log_multiplier")) rope["mscale"] = rope["mscale_all_dim"] = *v;
  if (const auto v = keys.number("attention.temperature_scale")) rope["llama_4_scaling_beta"] = *v;
}
void write_ministral3(const Json& config, GgufPairs& pairs) {
  const Json rope = value_in(config, "rope_parameters");
  if (!rope.is_object()) return;
  if (const Json v = value_in(rope, "mscale_all_dim"); v.is_number()) pairs.put("rope.scaling.yarn_log_multiplier", v.get<double>());
  if (const Json v = value_in(rope, "llama_4_scaling_beta"); v.is_number()) pairs.put("attention.temperature_scale", v.get<double>());
}

// Gemma 4: full layers have heads of their own width, and rotate a share of them by frequencies spread over the whole ("proportional"); llama.cpp gets those as factors
// that stop the rest.
int64_t full_head_dim(const Json& config) {
  const Json layers = value_in(config, "per_layer_config"), types = value_in(config, "layer_types");
  if (layers.is_object() && types.is_array())
    for (size_t i = 0; i < types.size(); ++i)
      if (types[i] == "full_attention" && layers.contains(std::to_string(i)))
        if (const auto d = count_in(layers[std::to_string(i)], "head_dim")) return *d;
  return count_in(config, "global_head_dim").value_or(needed_count(config, "head_dim"));
}

void write_gemma4(const Json& config, GgufPairs& pairs) {
  const int64_t full = full_head_dim(config), local = needed_count(config, "head_dim");
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) pairs.put(key, full);
  for (const char* key : {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"}) pairs.put(key, local);
  write_local_theta(config, pairs);
  const Json types = value_in(config, "layer_types"), layers = value_in(config, "per_layer_config");
  const int64_t n_kv = needed_count(config, "num_key_value_heads"), n_kv_full = count_in(config, "num_global_key_value_heads").value_or(n_kv);
  const int64_t d_ff = needed_count(config, "intermediate_size"), first_shared = needed_count(config, "num_hidden_layers") - count_in(config, "num_kv_shared_layers").value_or(0);
  const bool wide = value_in(config, "use_double_wide_mlp") == true;
  Json is_sliding = Json::array(), heads = Json::array(), widths = Json::array();
  for (size_t i = 0; i < types.size(); ++i) {
    const bool sliding = types[i] == "sliding_attention";
    const Json own = layers.is_object() && layers.contains(std::to_string(i)) ? Json(layers[std::to_string(i)]) : Json::object();
    is_sliding.push_back(sliding);
    heads.push_back(count_in(own, "num_key_value_heads").value_or(sliding ? n_kv : n_kv_full));
    widths.push_back(wide && static_cast<int64_t>(i) >= first_shared ? 2 * d_ff : d_ff);
  }
  pairs.put("attention.sliding_window_pattern", is_sliding);
  pairs.put("attention.head_count_kv", heads);
  pairs.put("feed_forward_length", wide ? widths : Json(d_ff));
}

void read_gemma4(const GgufKeys& keys, Json& config) {
  const int64_t n = needed_count(config, "num_hidden_layers"), local = keys.needed("attention.key_length_swa", 1, 1 << 16), full = keys.needed("attention.key_length", 1, 1 << 16);
  const auto heads = keys.per_layer("attention.head_count_kv", n), widths = keys.per_layer("feed_forward_length", n);
  config["head_dim"] = local;
  config["per_layer_config"] = Json::object();
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    if (config["layer_types"].size() > i && config["layer_types"][i] == "full_attention") {
      config["per_layer_config"][std::to_string(i)] = {{"head_dim", full}};
      if (heads.size() > i && heads[i] != heads[0]) config["per_layer_config"][std::to_string(i)]["num_key_value_heads"] = heads[i];
      config["attention_k_eq_v"] = !keys.has_tensor("blk." + std::to_string(i) + ".attn_v.weight") && keys.has_tensor("blk." + std::to_string(i) + ".attn_k.weight");
    } else if (heads.size() > i) {
      config["num_key_value_heads"] = heads[i];
    }
  }
  if (!widths.empty()) config["intermediate_size"] = widths[0], config["use_double_wide_mlp"] = widths.back() != widths[0];
  // Factors of 1 are the frequencies that turn.
  const Json factors = value_in(config["rope_parameters"], "long_factor");
  int64_t n_turning = 0;
  for (const Json& f : factors)
    if (f.is_number() && f.get<double>() < 1e20) ++n_turning;
  const double share = factors.is_array() && !factors.empty() ? static_cast<double>(n_turning) / static_cast<double>(factors.size()) : 1.0;
  const Json theta = config["rope_parameters"]["rope_theta"];
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "proportional"}, {"rope_theta", theta}, {"partial_rotary_factor", share}}},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", keys.number("rope.freq_base_swa").value_or(10000.0)}}}};
}

std::vector<GgufName> gemma4_names() {
  return norms_after() + std::vector<GgufName>{{"per_layer_token_embd", "model.embed_tokens_per_layer"},
                                               {"per_layer_model_proj", "model.per_layer_model_projection"},
                                               {"per_layer_proj_norm", "model.per_layer_projection_norm"},
                                               {"blk.{}.inp_gate", "model.layers.{}.per_layer_input_gate"},
                                               {"blk.{}.proj", "model.layers.{}.per_layer_projection"},
                                               {"blk.{}.post_norm", "model.layers.{}.post_per_layer_input_norm"},
                                               {"blk.{}.layer_output_scale.weight", "model.layers.{}.layer_scalar"}};
}

const GgufKey kLayerNorm = {"attention.layer_norm_epsilon", "layer_norm_eps", number};
const GgufKey kParallel = {"use_parallel_residual", "use_parallel_residual", boolean};

}  // namespace

std::vector<GgufArchitecture> dense_architectures() {
  const std::vector<GgufKey> granite_keys = {{"attention.scale", "attention_multiplier", number},
                                             {"embedding_scale", "embedding_multiplier", number},
                                             {"residual_scale", "residual_multiplier", number},
                                             {"logit_scale", "logits_scaling", number}};
  return {
      {.gguf = "llama", .model_type = "mistral", .class_name = "MistralForCausalLM", .names = interleaved_heads(), .known = R"({"hidden_act": "silu", "sliding_window": null})",
       .applies = has_window},
      {.gguf = "llama", .model_type = "llama", .class_name = "LlamaForCausalLM", .names = interleaved_heads(), .known = kSilu},
      {.gguf = "mistral3", .model_type = "ministral3", .class_name = "Ministral3ForCausalLM", .names = interleaved_heads(), .known = kSilu, .read = read_ministral3, .write = write_ministral3},
      {.gguf = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM", .known = kSilu},
      {.gguf = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", .known = kSilu},
      {.gguf = "phi3", .model_type = "phi3", .class_name = "Phi3ForCausalLM",
       .names = {{"blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"}, {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"}}, .known = kSilu, .write = write_phi3},
      {.gguf = "phi2", .model_type = "phi", .class_name = "PhiForCausalLM",
       .names = {{"output_norm", "model.final_layernorm"}, {"blk.{}.attn_output", "model.layers.{}.self_attn.dense"}, {"blk.{}.ffn_up", "model.layers.{}.mlp.fc1"},
                 {"blk.{}.ffn_down", "model.layers.{}.mlp.fc2"}},
       .keys = {kLayerNorm}, .known = R"({"hidden_act": "gelu_new", "qk_layernorm": false})"},
      {.gguf = "gpt2", .model_type = "gpt2", .class_name = "GPT2LMHeadModel",
       .names = {{"token_embd", "transformer.wte"}, {"position_embd", "transformer.wpe"}, {"output_norm", "transformer.ln_f"}, {"blk.{}.attn_norm", "transformer.h.{}.ln_1"},
                 {"blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn"}, {"blk.{}.attn_output", "transformer.h.{}.attn.c_proj"}, {"blk.{}.ffn_norm", "transformer.h.{}.ln_2"},
                 {"blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc"}, {"blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj"}},
       .keys = {{"context_length", "max_position_embeddings|n_positions"}, {"embedding_length", "hidden_size|n_embd"}, {"block_count", "num_hidden_layers|n_layer"},
                {"feed_forward_length", "intermediate_size|n_inner"}, {"attention.head_count", "num_attention_heads|n_head"}, {"attention.head_count_kv", "num_key_value_heads|num_attention_heads|n_head"},
                {"attention.layer_norm_epsilon", "layer_norm_epsilon", number, "1e-5"}},
       .known = R"({"activation_function": "gelu_new"})", .read = read_gpt2, .write = write_gpt2, .has_rope = false},
      {.gguf = "gptneox", .model_type = "gpt_neox", .class_name = "GPTNeoXForCausalLM",
       .names = {{"token_embd", "gpt_neox.embed_in"}, {"output_norm", "gpt_neox.final_layer_norm"}, {"output", "embed_out"}, {"blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"},
                 {"blk.{}.attn_qkv", "gpt_neox.layers.{}.attention.query_key_value", qkv_by_head}, {"blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"},
                 {"blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"}, {"blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
                 {"blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"}},
       .keys = {kLayerNorm, {"use_parallel_residual", "use_parallel_residual", boolean, "true"}}, .known = R"({"hidden_act": "gelu", "attention_bias": true})"},
      {.gguf = "starcoder2", .model_type = "starcoder2", .class_name = "Starcoder2ForCausalLM", .names = {{"blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"}, {"blk.{}.ffn_down", "model.layers.{}.mlp.c_proj"}},
       .keys = {{"attention.layer_norm_epsilon", "norm_epsilon", number}}, .known = R"({"hidden_act": "gelu_pytorch_tanh", "use_bias": true})"},
      {.gguf = "stablelm", .model_type = "stablelm", .class_name = "StableLmForCausalLM",
       .names = {{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm.norms.{}"}, {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm.norms.{}"}},
       .keys = {kLayerNorm, kParallel}, .known = kSilu,
       .read = [](const GgufKeys& keys, Json& config) {
         config["use_parallel_residual"] = !keys.has_tensor("blk.0.ffn_norm.weight");
         config["qk_layernorm"] = keys.has_tensor("blk.0.attn_q_norm.weight");
         config["use_qkv_bias"] = keys.has_tensor("blk.0.attn_q.bias");
       }},
      {.gguf = "olmo2", .model_type = "olmo3", .class_name = "Olmo3ForCausalLM", .names = norms_after(), .known = kSilu, .read = read_olmo3, .applies = has_window},
      {.gguf = "olmo2", .model_type = "olmo2", .class_name = "Olmo2ForCausalLM", .names = norms_after(), .known = kSilu},
      {.gguf = "smollm3", .model_type = "smollm3", .class_name = "SmolLM3ForCausalLM", .names = interleaved_heads(), .known = kSilu, .read = read_smollm3},
      {.gguf = "granite", .model_type = "granite", .class_name = "GraniteForCausalLM", .names = interleaved_heads(), .keys = granite_keys, .known = kSilu},
      {.gguf = "gemma", .model_type = "gemma", .class_name = "GemmaForCausalLM", .names = shifted_norms() + std::vector<GgufName>{{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", none, plus_one}},
       .known = R"({"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true})"},
      {.gguf = "gemma2", .model_type = "gemma2", .class_name = "Gemma2ForCausalLM", .names = norms_after(plus_one) + shifted_norms(),
       .keys = {{"attn_logit_softcapping", "attn_logit_softcapping", number}, {"final_logit_softcapping", "final_logit_softcapping", number}},
       .known = R"({"hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096, "tie_word_embeddings": true})", .read = read_gemma_scale},
      {.gguf = "gemma3", .model_type = "gemma3_text", .class_name = "Gemma3ForCausalLM", .names = norms_after(plus_one) + shifted_norms(),
       .keys = {{"attn_logit_softcapping", "attn_logit_softcapping", number}, {"final_logit_softcapping", "final_logit_softcapping", number}},
       .known = R"({"hidden_activation": "gelu_pytorch_tanh"})", .read = read_gemma_scale, .write = write_local_theta},
      {.gguf = "gemma4", .model_type = "gemma4_text", .class_name = "Gemma4ForCausalLM", .names = gemma4_names(),
       .keys = {{"final_logit_softcapping", "final_logit_softcapping", number}, {"embedding_length_per_layer_input", "hidden_size_per_layer_input", integer, "0"},
                {"attention.shared_kv_layers", "num_kv_shared_layers", integer, "0"}, {"attention.head_count_kv", ""}, {"feed_forward_length", ""}},
       .known = R"({"hidden_activation": "gelu_pytorch_tanh", "enable_moe_block": false})", .read = read_gemma4, .write = write_gemma4},
      {.gguf = "cohere2", .model_type = "cohere2", .class_name = "Cohere2ForCausalLM", .keys = {kLayerNorm, {"logit_scale", "logit_scale", number}}, .known = R"({"hidden_act": "silu", "tie_word_embeddings": true})",
       .read = read_window_pattern},
      {.gguf = "glm4", .model_type = "glm4", .class_name = "Glm4ForCausalLM",
       .names = {{"blk.{}.post_attention_norm", "model.layers.{}.post_self_attn_layernorm"}, {"blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm"}, {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"}},
       .known = kSilu, .read = [](const GgufKeys& keys, Json& config) { config["attention_bias"] = keys.has_tensor("blk.0.attn_q.bias"); }},
      {.gguf = "ernie4_5", .model_type = "ernie4_5", .class_name = "Ernie4_5ForCausalLM", .known = R"({"hidden_act": "silu", "use_bias": false})"},
      {.gguf = "exaone4", .model_type = "exaone4", .class_name = "Exaone4ForCausalLM", .names = norms_after(), .known = kSilu,
       .read = [](const GgufKeys&, Json& config) {
         if (!config.contains("layer_types")) config["layer_types"] = periodic_layers(needed_count(config, "num_hidden_layers"), config.contains("sliding_window") ? 4 : 1);
       }},
      {.gguf = "seed_oss", .model_type = "seed_oss", .class_name = "SeedOssForCausalLM", .names = {{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"}}, .known = kSilu,
       .read = [](const GgufKeys& keys, Json& config) {
         config["attention_bias"] = keys.has_tensor("blk.0.attn_q.bias");
         config["attention_out_bias"] = keys.has_tensor("blk.0.attn_output.bias");
       }},
      {.gguf = "hunyuan-dense", .model_type = "hunyuan_v1_dense", .class_name = "HunYuanDenseV1ForCausalLM",
       .names = {{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.query_layernorm"}, {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.key_layernorm"}}, .known = kSilu},
  };
}

}  // namespace ridge
