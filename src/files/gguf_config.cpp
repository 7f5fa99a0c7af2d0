#include "files/gguf_config.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace ridge {
namespace {

enum class Kind { integer, number };

struct KeyPair {
  std::string_view gguf;                    // after "<architecture>."
  std::string_view hf;
  Kind kind;
  std::string_view only = {};               // model_types it belongs to (a list in one string); all when empty
};

// Keys that are one number on both sides.
constexpr KeyPair kKeys[] = {
    {"context_length", "max_position_embeddings", Kind::integer},
    {"embedding_length", "hidden_size", Kind::integer},
    {"block_count", "num_hidden_layers", Kind::integer},
    {"feed_forward_length", "intermediate_size", Kind::integer},
    {"attention.head_count", "num_attention_heads", Kind::integer},
    {"attention.head_count_kv", "num_key_value_heads", Kind::integer},
    {"attention.key_length", "head_dim", Kind::integer},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number},
    {"attention.layer_norm_epsilon", "norm_epsilon", Kind::number, "starcoder2"},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", Kind::number, "gpt2"},
    {"attn_logit_softcapping", "attn_logit_softcapping", Kind::number, "gemma2 gemma3_text"},
    {"final_logit_softcapping", "final_logit_softcapping", Kind::number, "gemma2 gemma3_text"},
    {"attention.scale", "attention_multiplier", Kind::number, "granite"},
    {"embedding_scale", "embedding_multiplier", Kind::number, "granite"},
    {"residual_scale", "residual_multiplier", Kind::number, "granite"},
    {"logit_scale", "logits_scaling", Kind::number, "granite"},
};

// GPT-2 calls the same things by older names; both are set when reading.
constexpr std::pair<std::string_view, std::string_view> kGpt2Keys[] = {
    {"max_position_embeddings", "n_positions"}, {"hidden_size", "n_embd"}, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}, {"intermediate_size", "n_inner"}};

// Things llama.cpp's loaders know by heart instead of reading them.
struct Known {
  std::string_view model_type, key;
  const char* json;
};
constexpr Known kKnown[] = {
    {"llama", "hidden_act", "\"silu\""},     {"mistral", "hidden_act", "\"silu\""},   {"qwen2", "hidden_act", "\"silu\""},      {"qwen3", "hidden_act", "\"silu\""},
    {"phi3", "hidden_act", "\"silu\""},      {"olmo2", "hidden_act", "\"silu\""},     {"olmo3", "hidden_act", "\"silu\""},      {"smollm3", "hidden_act", "\"silu\""},
    {"granite", "hidden_act", "\"silu\""},   {"gemma", "hidden_activation", "\"gelu_pytorch_tanh\""}, {"gemma2", "hidden_activation", "\"gelu_pytorch_tanh\""},
    {"gemma3_text", "hidden_activation", "\"gelu_pytorch_tanh\""}, {"gemma", "hidden_act", "\"gelu_pytorch_tanh\""}, {"gpt2", "activation_function", "\"gelu_new\""},
    {"starcoder2", "hidden_act", "\"gelu_pytorch_tanh\""}, {"starcoder2", "use_bias", "true"},
    {"gemma2", "attn_logit_softcapping", "50.0"}, {"gemma2", "final_logit_softcapping", "30.0"}, {"gemma2", "sliding_window", "4096"},
};

bool belongs(const KeyPair& k, std::string_view model_type) {
  if (k.only.empty()) return true;
  for (size_t at = 0; at < k.only.size();) {
    const size_t end = std::min(k.only.find(' ', at), k.only.size());
    if (k.only.substr(at, end - at) == model_type) return true;
    at = end + 1;
  }
  return false;
}

// A period p marks every p-th layer as full attention, the others as sliding.
Json periodic_layers(int64_t n_layers, int64_t period) {
  Json list = Json::array();
  for (int64_t i = 0; i < n_layers; ++i) list.push_back((i + 1) % period == 0 ? "full_attention" : "sliding_attention");
  return list;
}

bool nearly_equal(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::fabs(a[i] - b[i]) > 1e-4f * std::fabs(a[i])) return false;
  return true;
}

class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, const GgufArchitecture& a) : file_(file), m_(file.metadata()), arch_(std::string(a.gguf) + ".") {}

  std::optional<int64_t> integer(std::string_view key) const { return one(key, [&](const std::string& k) { return m_.integer(k); }); }
  std::optional<double> number(std::string_view key) const { return one(key, [&](const std::string& k) { return m_.number(k); }); }
  std::optional<std::string> string(std::string_view key) const { return m_.string(arch_ + std::string(key)); }
  std::string full(std::string_view key) const { return arch_ + std::string(key); }

  int64_t needed(std::string_view key, int64_t min, int64_t max) const {
    const auto v = integer(key);
    if (!v) fail("{}: metadata '{}' is missing", file_.path(), full(key));
    if (*v < min || *v > max) fail("{}: metadata '{}' is {}, not between {} and {}", file_.path(), full(key), *v, min, max);
    return *v;
  }

 private:
  // Some converters write a per-layer list where all layers agree.
  template <class Get>
  auto one(std::string_view key, Get get) const -> decltype(get(std::string())) {
    const std::string k = full(key);
    const auto it = m_.values().find(k);
    if (it == m_.values().end()) return std::nullopt;
    if (!it->second.is_array) return get(k);
    const auto list = m_.floats(k);
    if (list->empty()) fail("{}: metadata '{}' is an empty list", file_.path(), k);
    for (const float v : *list)
      if (v != list->front()) fail("{}: metadata '{}' differs between layers, which this architecture does not support", file_.path(), k);
    using T = typename decltype(get(std::string()))::value_type;
    if (!(std::fabs(list->front()) < 1e15f)) fail("{}: metadata '{}' is {}", file_.path(), k, list->front());
    return static_cast<T>(list->front());
  }

  const GgufFile& file_;
  const GgufMetadata& m_;
  std::string arch_;
};

Json rope_section(const ConfigReader& r, const Json& config, const GgufRopeFactors& rope, const GgufFile& file) {
  const double theta = r.number("rope.freq_base").value_or(10000.0);
  Json section = {{"rope_type", "default"}, {"rope_theta", theta}};
  const int64_t context = config.value("max_position_embeddings", int64_t{0}), head_dim = config.at("head_dim").get<int64_t>();
  if (const auto n_rotated = r.integer("rope.dimension_count"); n_rotated && *n_rotated > 0 && *n_rotated < head_dim)
    section["partial_rotary_factor"] = static_cast<double>(*n_rotated) / static_cast<double>(head_dim);
  std::string type = r.string("rope.scaling.type").value_or("none");
  auto factor = r.number("rope.scaling.factor");
  if (!factor) factor = r.number("rope.scale_linear");
  if (type == "none" && factor && *factor != 1.0 && !r.string("rope.scaling.type")) type = "linear";
  const auto original = r.integer("rope.scaling.original_context_length");
  if (!rope.freqs.empty()) {
    const double largest = *std::max_element(rope.freqs.begin(), rope.freqs.end());
    for (const int64_t context_before : {original.value_or(8192), int64_t{8192}}) {
      if (!nearly_equal(rope.freqs, llama3_rope_factors(theta, head_dim, largest, 1.0, 4.0, static_cast<double>(context_before)))) continue;
      section["rope_type"] = "llama3";
      section["factor"] = largest;
      section["low_freq_factor"] = 1.0;
      section["high_freq_factor"] = 4.0;
      section["original_max_position_embeddings"] = context_before;
      return section;
    }
    // Any other division of frequencies is a LongRoPE whose two lists agree.
    section["rope_type"] = "longrope";
    section["long_factor"] = rope.freqs;
    section["short_factor"] = rope.freqs;
    section["attention_factor"] = 1.0;
    section["original_max_position_embeddings"] = context;
    return section;
  }
  if (!rope.long_factor.empty()) {
    if (rope.long_factor.size() != rope.short_factor.size()) fail("{}: rope_factors_long and rope_factors_short differ in length", file.path());
    section["rope_type"] = "longrope";
    section["long_factor"] = rope.long_factor;
    section["short_factor"] = rope.short_factor;
    if (const auto attention = r.number("rope.scaling.attn_factor")) section["attention_factor"] = *attention;
    section["original_max_position_embeddings"] = original.value_or(context);
    if (original && *original > 0) section["factor"] = static_cast<double>(context) / static_cast<double>(*original);
    return section;
  }
  if (type == "none" || type.empty()) return section;
  if (type != "linear" && type != "yarn") fail("{}: metadata '{}' is '{}'; known are none, linear, yarn and longrope (with its factors)", file.path(), r.full("rope.scaling.type"), type);
  section["rope_type"] = type;
  section["factor"] = factor.value_or(1.0);
  if (original) section["original_max_position_embeddings"] = *original;
  if (const auto v = r.number("rope.scaling.yarn_attn_factor")) section["attention_factor"] = *v;
  if (const auto v = r.number("rope.scaling.yarn_beta_fast")) section["beta_fast"] = *v;
  if (const auto v = r.number("rope.scaling.yarn_beta_slow")) section["beta_slow"] = *v;
  return section;
}

void set_layer_kinds(Json& config, const ConfigReader& r, const GgufFile& file, std::string_view model_type) {
  const int64_t n_layers = config.at("num_hidden_layers").get<int64_t>();
  if (const auto window = r.integer("attention.sliding_window")) config["sliding_window"] = *window > 0 ? Json(*window) : Json(nullptr);
  const std::string pattern = r.full("attention.sliding_window_pattern");
  if (const auto it = file.metadata().values().find(pattern); it != file.metadata().values().end()) {
    if (it->second.is_array) {
      const auto is_sliding = *file.metadata().integers(pattern);
      if (static_cast<int64_t>(is_sliding.size()) < n_layers) fail("{}: metadata '{}' has {} values for {} layers", file.path(), pattern, is_sliding.size(), n_layers);
      config["layer_types"] = Json::array();
      for (int64_t i = 0; i < n_layers; ++i) config["layer_types"].push_back(is_sliding[static_cast<size_t>(i)] ? "sliding_attention" : "full_attention");
    } else if (const auto period = r.integer("attention.sliding_window_pattern"); *period > 0) {
      config["layer_types"] = periodic_layers(n_layers, *period);
    }
  } else if (model_type == "gemma2") {
    config["layer_types"] = periodic_layers(n_layers, 2);
  } else if (model_type == "gemma3_text") {
    config["layer_types"] = config.contains("sliding_window") ? periodic_layers(n_layers, 6) : Json(std::vector<std::string>(static_cast<size_t>(n_layers), "full_attention"));
  }
}

}  // namespace

std::vector<float> llama3_rope_factors(double theta, int64_t head_dim, double factor, double low, double high, double original_context) {
  std::vector<float> factors;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double wavelength = 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(head_dim));
    const double smooth = (original_context / wavelength - low) / (high - low);
    if (wavelength < original_context / high) factors.push_back(1.0f);
    else if (wavelength > original_context / low) factors.push_back(static_cast<float>(factor));
    else factors.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth)));
  }
  return factors;
}

Json config_from_gguf(const GgufFile& file, const GgufArchitecture& a, const GgufRopeFactors& rope, int64_t n_vocab_rows, bool has_output) {
  const ConfigReader r(file, a);
  const GgufMetadata& m = file.metadata();
  std::string model_type(a.model_type), class_name(a.class_name);
  if (a.gguf == "olmo2" && r.integer("attention.sliding_window").value_or(0) > 0) model_type = "olmo3", class_name = "Olmo3ForCausalLM";
  if (a.gguf == "llama" && r.integer("attention.sliding_window").value_or(0) > 0) model_type = "mistral", class_name = "MistralForCausalLM";
  Json config = {{"model_type", model_type}, {"architectures", Json::array({class_name})}};
  const int64_t n_layers = r.needed("block_count", 1, 100'000), n_heads = r.needed("attention.head_count", 1, 1'000'000);
  const int64_t d_model = r.needed("embedding_length", 1, 1 << 30);
  r.needed("feed_forward_length", 0, 1 << 30);
  for (const Known& k : kKnown)
    if (k.model_type == model_type) config[std::string(k.key)] = Json::parse(k.json);
  for (const KeyPair& k : kKeys) {
    if (!belongs(k, model_type)) continue;
    if (k.kind == Kind::integer) {
      if (r.integer(k.gguf)) config[std::string(k.hf)] = r.needed(k.gguf, 0, k.hf == "head_dim" ? 1 << 16 : int64_t{1} << 40);
    } else if (const auto v = r.number(k.gguf)) {
      config[std::string(k.hf)] = *v;
    }
  }
  if (!config.contains("num_key_value_heads")) config["num_key_value_heads"] = n_heads;
  if (!config.contains("head_dim")) config["head_dim"] = d_model / n_heads;
  if (config["head_dim"].get<int64_t>() <= 0 || config["num_key_value_heads"].get<int64_t>() <= 0)
    fail("{}: a model with head_dim {} and {} key/value heads cannot be", file.path(), config["head_dim"].get<int64_t>(), config["num_key_value_heads"].get<int64_t>());
  config["vocab_size"] = n_vocab_rows > 0 ? n_vocab_rows : static_cast<int64_t>(m.count("tokenizer.ggml.tokens").value_or(0));
  config["tie_word_embeddings"] = !has_output;
  set_layer_kinds(config, r, file, model_type);
  config["rope_parameters"] = rope_section(r, config, rope, file);
  if (model_type == "gpt2")
    for (const auto& [hf, old] : kGpt2Keys)
      if (config.contains(hf)) config[std::string(old)] = Json(config[std::string(hf)]);
  if (model_type == "gemma3_text" || model_type == "olmo3") {
    // Layers of a sliding window are rotated without scaling, Gemma's with a base of their own.
    Json local = {{"rope_type", "default"}, {"rope_theta", config["rope_parameters"]["rope_theta"]}};
    if (model_type == "gemma3_text") local["rope_theta"] = r.number("rope.freq_base_swa").value_or(10000.0);
    config["rope_parameters"] = {{"full_attention", config["rope_parameters"]}, {"sliding_attention", local}};
  }
  if (model_type == "gemma2" || model_type == "gemma3_text") {
    // The 27B models scale queries by their share of the model's width, the others by the head's.
    const bool is_27b = n_layers == (model_type == "gemma2" ? 46 : 62);
    config["query_pre_attn_scalar"] = is_27b ? Json(d_model / n_heads) : config["head_dim"];
  }
  if (model_type == "smollm3") {
    config["no_rope_layers"] = Json::array();
    for (int64_t i = 0; i < n_layers; ++i) config["no_rope_layers"].push_back((i + 1) % 4 != 0 ? 1 : 0);
  }
  if (const auto id = m.integer("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = *id;
  if (const auto id = m.integer("tokenizer.ggml.eos_token_id")) config["eos_token_id"] = *id;
  return config;
}

std::vector<GgufPair> gguf_from_config(const Json& config, const GgufArchitecture& a) {
  std::vector<GgufPair> pairs = {{"general.architecture", a.gguf}};
  const std::string arch = std::string(a.gguf) + ".";
  const auto put = [&](std::string_view key, Json value) { pairs.push_back({arch + std::string(key), std::move(value)}); };
  const auto value = [&](std::string_view key) -> Json {
    if (config.contains(key) && !config[std::string(key)].is_null()) return config[std::string(key)];
    if (a.model_type == "gpt2")
      for (const auto& [hf, old] : kGpt2Keys)
        if (hf == key && config.contains(old) && !config[std::string(old)].is_null()) return config[std::string(old)];
    return nullptr;
  };
  for (const KeyPair& k : kKeys) {
    if (!belongs(k, a.model_type)) continue;
    Json v = value(k.hf);
    if (k.hf == "intermediate_size" && v.is_null() && a.model_type == "gpt2") v = 4 * value("hidden_size").get<int64_t>();
    if (k.hf == "num_key_value_heads" && v.is_null()) v = value("num_attention_heads");
    if (!v.is_number()) continue;
    if (k.kind == Kind::integer) put(k.gguf, v.get<int64_t>());
    else put(k.gguf, v.get<double>());
  }
  const int64_t n_heads = value("num_attention_heads").get<int64_t>(), d_model = value("hidden_size").get<int64_t>();
  const int64_t head_dim = value("head_dim").is_number() ? value("head_dim").get<int64_t>() : d_model / n_heads;
  if (value("head_dim").is_number()) put("attention.value_length", head_dim);
  if (config.contains("vocab_size")) put("vocab_size", config["vocab_size"].get<int64_t>());

  const Json window = value("sliding_window");
  if (window.is_number()) put("attention.sliding_window", window.get<int64_t>());
  else if (a.model_type == "phi3") put("attention.sliding_window", 0);
  if (a.model_type == "olmo3" && config.contains("layer_types")) {
    Json is_sliding = Json::array();
    for (const Json& kind : config["layer_types"]) is_sliding.push_back(kind == "sliding_attention");
    put("attention.sliding_window_pattern", is_sliding);
  }
  if (a.model_type == "gpt2") return pairs;

  Json rope = config.value("rope_parameters", Json::object());
  if (rope.contains("sliding_attention") && a.model_type == "gemma3_text") put("rope.freq_base_swa", rope["sliding_attention"].value("rope_theta", 10000.0));
  if (rope.contains("full_attention")) rope = Json(rope["full_attention"]);
  put("rope.freq_base", rope.value("rope_theta", 10000.0));
  const double rotated = rope.value("partial_rotary_factor", 1.0);
  put("rope.dimension_count", static_cast<int64_t>(rotated * static_cast<double>(head_dim)));
  const std::string type = rope.value("rope_type", "default");
  if (type == "linear" || type == "yarn") {
    put("rope.scaling.type", type);
    put("rope.scaling.factor", rope.value("factor", 1.0));
    if (type == "yarn") put("rope.scaling.original_context_length", rope.value("original_max_position_embeddings", config.value("max_position_embeddings", int64_t{0})));
    if (rope.contains("attention_factor") && rope["attention_factor"].is_number()) put("rope.scaling.yarn_attn_factor", rope["attention_factor"].get<double>());
    if (rope.contains("beta_fast")) put("rope.scaling.yarn_beta_fast", rope["beta_fast"].get<double>());
    if (rope.contains("beta_slow")) put("rope.scaling.yarn_beta_slow", rope["beta_slow"].get<double>());
  } else if (type == "longrope") {
    const double context = config.value("max_position_embeddings", 0.0), original = rope.value("original_max_position_embeddings", context);
    put("rope.scaling.type", "longrope");
    put("rope.scaling.original_context_length", static_cast<int64_t>(original));
    const double scale = rope.contains("factor") && rope["factor"].is_number() ? rope["factor"].get<double>() : original > 0 ? context / original : 1.0;
    const double usual = scale > 1 && original > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1.0;
    put("rope.scaling.attn_factor", rope.contains("attention_factor") && rope["attention_factor"].is_number() ? rope["attention_factor"].get<double>() : usual);
  }
  return pairs;
}

GgufRopeFactors rope_factors_from_config(const Json& config) {
  Json rope = config.value("rope_parameters", Json::object());
  if (rope.contains("full_attention")) rope = Json(rope["full_attention"]);
  const std::string type = rope.value("rope_type", "default");
  GgufRopeFactors factors;
  if (type == "llama3") {
    const int64_t head_dim = config.contains("head_dim") && config["head_dim"].is_number() ? config["head_dim"].get<int64_t>()
                                                                                            : config.at("hidden_size").get<int64_t>() / config.at("num_attention_heads").get<int64_t>();
    factors.freqs = llama3_rope_factors(rope.value("rope_theta", 10000.0), head_dim, rope.value("factor", 8.0), rope.value("low_freq_factor", 1.0), rope.value("high_freq_factor", 4.0),
                                        rope.value("original_max_position_embeddings", 8192.0));
  } else if (type == "longrope") {
    factors.long_factor = rope.at("long_factor").get<std::vector<float>>();
    factors.short_factor = rope.at("short_factor").get<std::vector<float>>();
  }
  return factors;
}

}  // namespace ridge
