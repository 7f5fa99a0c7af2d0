#include "files/hf_config.h"

#include <algorithm>

#include "base/error.h"

namespace ridge {
namespace {

Json take(Json& object, std::string_view key) {
  const auto it = object.find(key);
  if (it == object.end()) return nullptr;
  Json value = std::move(*it);
  object.erase(it);
  return value;
}

void lift_text_config(Json& config, const std::string& file) {
  for (const char* key : {"text_config", "language_config", "llm_config"}) {
    if (!config.contains(key)) continue;
    Json text = take(config, key);
    if (!text.is_object()) fail("{}: '{}' is not an object", file, key);
    for (const auto& [name, value] : config.items())
      if (!text.contains(name)) text[name] = value;
    config = std::move(text);
    return;
  }
}

// What Gemma 3's published configurations leave to the library's defaults.
void fill_gemma3(Json& config) {
  static const Json defaults = Json::parse(R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256, "sliding_window": 4096, "tie_word_embeddings": true})");
  for (const auto& [key, value] : defaults.items())
    if (!config.contains(key)) config[key] = value;
  if (!config.contains("rope_parameters") && !config.contains("rope_theta")) config["rope_theta"] = 1000000.0;
  if (!config.contains("rope_parameters") && !config.contains("rope_local_base_freq")) config["rope_local_base_freq"] = 10000.0;
}

// Layers whose kind the configuration gives by a rule.
void fill_layer_types(Json& config, std::string_view model_type) {
  if (config.contains("layer_types") && config["layer_types"].is_array()) return;
  int64_t period = 0;
  if (model_type == "gemma2") period = 2;
  if (model_type == "olmo3") period = 4;
  if (model_type == "gemma3_text") {
    period = 6;
    for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"})
      if (config.contains(key) && config[key].is_number_integer()) period = config[key].get<int64_t>();
  }
  const int64_t n = config.contains("num_hidden_layers") && config["num_hidden_layers"].is_number_integer() ? config["num_hidden_layers"].get<int64_t>() : 0;
  if (period <= 0 || n <= 0 || n > 100'000) return;
  Json types = Json::array();
  for (int64_t i = 0; i < n; ++i) types.push_back((i + 1) % period == 0 ? "full_attention" : "sliding_attention");
  config["layer_types"] = std::move(types);
}

void normalize_section(Json& section, const Json& config, const Json& theta, const Json& partial) {
  if (Json type = take(section, "type"); !type.is_null() && !section.contains("rope_type")) section["rope_type"] = std::move(type);
  if (!section.contains("rope_type") || !section["rope_type"].is_string()) section["rope_type"] = "default";
  if (section["rope_type"] == "su") section["rope_type"] = "longrope";
  if (theta.is_number() && (!section.contains("rope_theta") || section["rope_theta"].is_null())) section["rope_theta"] = theta;     // else it is the family's own
  if (!section.contains("partial_rotary_factor") && partial.is_number()) section["partial_rotary_factor"] = partial;
  const Json original = config.value("original_max_position_embeddings", Json());
  if (!section.contains("original_max_position_embeddings") && original.is_number()) section["original_max_position_embeddings"] = original;
}

void normalize_rope(Json& config, const std::string& file, std::string_view model_type) {
  Json scaling = take(config, "rope_scaling"), parameters = take(config, "rope_parameters");
  const Json theta = take(config, "rope_theta"), local_theta = take(config, "rope_local_base_freq"), partial = config.value("partial_rotary_factor", Json());
  for (const auto& [name, section] : {std::pair{"rope_scaling", &scaling}, std::pair{"rope_parameters", &parameters}})
    if (!section->is_null() && !section->is_object()) fail("{}: '{}' is neither an object nor null", file, name);
  Json rope = parameters.is_object() ? std::move(parameters) : scaling.is_object() ? std::move(scaling) : Json::object();
  const bool nested = !rope.empty() && std::all_of(rope.begin(), rope.end(), [](const Json& v) { return v.is_object(); });
  if (nested) {
    for (auto& [kind, section] : rope.items()) normalize_section(section, config, theta, partial);
  } else {
    normalize_section(rope, config, theta, partial);
    const bool local = local_theta.is_number();
    if (local || (model_type == "olmo3" && rope["rope_type"] != "default")) {
      Json sliding = {{"rope_type", "default"}, {"rope_theta", local ? local_theta : rope["rope_theta"]}};
      rope = {{"full_attention", std::move(rope)}, {"sliding_attention", std::move(sliding)}};
    }
  }
  config["rope_parameters"] = std::move(rope);
}

}  // namespace

Json normalize_config(Json config, const std::string& file) {
  if (!config.is_object()) fail("{}: not a JSON object", file);
  lift_text_config(config, file);
  if (Json dtype = take(config, "torch_dtype"); !dtype.is_null() && !config.contains("dtype")) config["dtype"] = std::move(dtype);
  const std::string model_type = config.contains("model_type") && config["model_type"].is_string() ? config["model_type"].get<std::string>() : "";
  if (model_type == "gemma3_text") fill_gemma3(config);
  fill_layer_types(config, model_type);
  normalize_rope(config, file, model_type);
  return config;
}

std::string token_text(const Json& object, std::string_view key) {
  if (!object.is_object()) return {};
  const auto it = object.find(key);
  if (it == object.end()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) return (*it)["content"].get<std::string>();
  return {};
}

std::string template_of(const Json& tokenizer_config) {
  if (!tokenizer_config.is_object() || !tokenizer_config.contains("chat_template")) return {};
  const Json& t = tokenizer_config["chat_template"];
  if (t.is_string()) return t.get<std::string>();
  if (!t.is_array()) return {};
  const Json* chosen = nullptr;
  for (const Json& named : t) {
    if (!named.is_object() || !named.contains("template") || !named["template"].is_string()) continue;
    if (!chosen || (named.contains("name") && named["name"] == "default")) chosen = &named["template"];
  }
  return chosen ? chosen->get<std::string>() : std::string();
}

void append_ids(std::vector<int32_t>& ids, const Json& object, std::string_view key) {
  if (!object.is_object()) return;
  const auto it = object.find(key);
  if (it == object.end()) return;
  const auto add = [&](const Json& v) {
    if (!v.is_number_integer()) return;
    const auto id = v.get<int64_t>();
    if (id < 0 || id > INT32_MAX) return;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(static_cast<int32_t>(id));
  };
  if (it->is_array()) for (const Json& v : *it) add(v);
  else add(*it);
}

std::string without_python_floats(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_string)
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (text.substr(i, word.size()) == word) {
          out += "{\"__float__\": \"";
          out += word;
          out += "\"}";
          i += word.size();
          break;
        }
    if (i >= text.size()) break;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) out += text[i++];
    else if (text[i] == '"') in_string = !in_string;
    out += text[i];
  }
  return out;
}

}  // namespace ridge
