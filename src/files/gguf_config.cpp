#include "files/gguf_config.h"

#include <cmath>

#include "base/error.h"
#include "files/gguf/common.h"

namespace ridge {
namespace {

std::string first_name(std::string_view names) { return std::string(names.substr(0, names.find('|'))); }

// The keys of an architecture: its own, and the common ones it does not replace.
std::vector<GgufKey> keys_of(const GgufArchitecture& a) {
  std::vector<GgufKey> keys = a.keys;
  for (const GgufKey& c : common_keys()) {
    bool replaced = false;
    for (const GgufKey& k : a.keys) replaced |= k.gguf == c.gguf;
    if (!replaced) keys.push_back(c);
  }
  return keys;
}

void read_key(const GgufKeys& r, const GgufKey& k, Json& config) {
  if (k.hf.empty() || !r.metadata().has(r.full(k.gguf))) return;
  const std::string name = first_name(k.hf);
  if (k.kind == KeyKind::integer) config[name] = r.needed(k.gguf, 0, name == "head_dim" ? 1 << 16 : int64_t{1} << 40);
  else if (k.kind == KeyKind::number) config[name] = *r.number(k.gguf);
  else config[name] = *r.boolean(k.gguf);
}

void set_windows(Json& config, const GgufKeys& r) {
  const int64_t n_layers = config.at("num_hidden_layers").get<int64_t>();
  if (const auto window = r.integer("attention.sliding_window")) config["sliding_window"] = *window > 0 ? Json(*window) : Json(nullptr);
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const auto it = r.metadata().values().find(r.full(kPattern));
  if (it == r.metadata().values().end()) return;
  if (!it->second.is_array) {
    config["layer_types"] = periodic_layers(n_layers, r.needed(kPattern, 0, 1 << 20));
    return;
  }
  config["layer_types"] = Json::array();
  for (const int64_t is_sliding : r.per_layer(kPattern, n_layers)) config["layer_types"].push_back(is_sliding ? "sliding_attention" : "full_attention");
}

void write_windows(const Json& config, const GgufArchitecture& a, GgufPairs& pairs) {
  const Json window = value_in(config, "sliding_window"), types = value_in(config, "layer_types");
  bool any = types.is_null();
  if (types.is_array())
    for (const Json& t : types) any |= t == "sliding_attention";
  if (!window.is_number_integer() || !any) return;
  if (value_in(config, "use_sliding_window") == false) return;
  pairs.put("attention.sliding_window", window.get<int64_t>());
  if (!types.is_array() || !a.has_heads) return;
  if (const auto period = period_of(types)) {
    pairs.put("attention.sliding_window_pattern", *period);
    return;
  }
  Json is_sliding = Json::array();
  for (const Json& t : types) is_sliding.push_back(t == "sliding_attention");
  pairs.put("attention.sliding_window_pattern", is_sliding);
}

}  // namespace

Json config_from_gguf(const GgufFile& file, const GgufArchitecture& a, const GgufRopeFactors& rope, int64_t n_vocab_rows, bool has_output) {
  const GgufKeys r(file, a.gguf);
  const GgufMetadata& m = file.metadata();
  Json config = {{"model_type", a.model_type}, {"architectures", Json::array({a.class_name})}};
  r.needed("block_count", 1, 100'000);
  const int64_t d_model = r.needed("embedding_length", 1, 1 << 30), n_heads = r.needed("attention.head_count", a.has_heads ? 1 : 0, 1'000'000);
  if (!m.has(r.full("feed_forward_length"))) fail("{}: metadata '{}' is missing", file.path(), r.full("feed_forward_length"));
  const Json known = Json::parse(a.known);
  for (const auto& [key, value] : known.items()) config[key] = value;
  for (const GgufKey& k : keys_of(a)) read_key(r, k, config);
  if (a.has_heads) {
    if (!config.contains("num_key_value_heads")) config["num_key_value_heads"] = n_heads;
    if (!config.contains("head_dim")) config["head_dim"] = d_model / n_heads;
    if (config["head_dim"].get<int64_t>() <= 0 || config["num_key_value_heads"].get<int64_t>() <= 0)
      fail("{}: a model with head_dim {} and {} key/value heads cannot be", file.path(), config["head_dim"].get<int64_t>(), config["num_key_value_heads"].get<int64_t>());
    if (r.has_tensor("blk.0.attn_output.bias")) config["attention_bias"] = true;
    if (r.has_tensor("blk.0.ffn_down.bias")) config["mlp_bias"] = true;
  }
  config["vocab_size"] = n_vocab_rows > 0 ? n_vocab_rows : static_cast<int64_t>(m.count("tokenizer.ggml.tokens").value_or(0));
  config["tie_word_embeddings"] = !has_output;
  set_windows(config, r);
  if (a.has_rope) config["rope_parameters"] = rope_section(r, config, rope);
  if (a.read) {
    try {
      a.read(r, config);
    } catch (const Json::exception& e) {
      fail("{}: the metadata lacks what a {} needs, or has it in another type: {}", file.path(), a.model_type, e.what());
    }
  }
  if (const auto id = m.integer("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = *id;
  if (const auto id = m.integer("tokenizer.ggml.eos_token_id")) config["eos_token_id"] = *id;
  return config;
}

std::vector<GgufPair> gguf_from_config(const Json& config, const GgufArchitecture& a) {
  GgufPairs pairs(a.gguf);
  pairs.put_general("general.architecture", a.gguf);
  for (const GgufKey& k : keys_of(a)) {
    Json v = k.hf.empty() ? Json() : value_in(config, k.hf);
    if (v.is_null() && k.otherwise) v = Json::parse(k.otherwise);
    if (k.kind == KeyKind::boolean ? !v.is_boolean() : !v.is_number()) continue;
    if (k.kind == KeyKind::integer) pairs.put(k.gguf, v.get<int64_t>());
    else if (k.kind == KeyKind::number) pairs.put(k.gguf, v.get<double>());
    else pairs.put(k.gguf, v.get<bool>());
  }
  if (config.contains("vocab_size")) pairs.put("vocab_size", config["vocab_size"].get<int64_t>());
  if (a.has_heads) {
    const auto head_dim = count_in(config, "head_dim");
    if (head_dim) pairs.put("attention.value_length", *head_dim);
    write_windows(config, a, pairs);
    if (a.has_rope) write_rope(config, head_dim ? *head_dim : needed_count(config, "hidden_size|n_embd") / needed_count(config, "num_attention_heads|n_head"), pairs);
  }
  if (a.write) a.write(config, pairs);
  return pairs.take();
}

std::vector<std::string> differences_for_llama_cpp(const Json& config, const GgufArchitecture& a, const GgufFile& file) {
  std::vector<std::string> differences;
  Json taken = config_from_gguf(file, a, rope_factors_from_config(config), 0, config.value("tie_word_embeddings", Json(false)) != true);
  const Json known = Json::parse(a.known);
  for (const auto& [key, value] : known.items())
    if (key == "tie_word_embeddings" || (key == "sliding_window" && value.is_null())) taken[key] = value;
  for (const auto& [key, value] : taken.items()) {
    const Json mine = value_in(config, key);
    const bool is_elsewhere = key == "architectures" || key == "rope_parameters" || key == "vocab_size" || key.ends_with("_token_id");
    if (mine.is_null() || is_elsewhere || mine == value) continue;
    if (mine.is_number() && value.is_number() && std::fabs(mine.get<double>() - value.get<double>()) <= 1e-6 * std::fabs(mine.get<double>())) continue;
    differences.push_back(fmt::format("{} is {}, llama.cpp takes it to be {}", key, mine.dump(), value.dump()));
  }
  const Json rope = value_in(config, "rope_parameters");
  if (a.has_rope && rope.is_object() && value_in(rope, "rope_type") == "dynamic") differences.push_back("rope_type is dynamic, for which GGUF has no key");
  return differences;
}

}  // namespace ridge
