#include "files/gguf/common.h"

#include <cmath>

#include "base/error.h"

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

// Metadata of one architecture.

namespace {

// Some converters write a list with a value for each layer where all agree; 0 means that a layer has none of it.
template <class T, class Get>
std::optional<T> one_value(const GgufKeys& keys, std::string_view key, Get get) {
  const std::string k = keys.full(key);
  const auto it = keys.metadata().values().find(k);
  if (it == keys.metadata().values().end()) return std::nullopt;
  if (!it->second.is_array) return get(k);
  const auto list = keys.metadata().floats(k);
  if (list->empty()) fail("{}: metadata '{}' is an empty list", keys.file().path(), k);
  float value = 0;
  for (const float v : *list) {
    if (!(std::fabs(v) < 1e15f)) fail("{}: metadata '{}' is {}", keys.file().path(), k, v);
    if (v != 0 && value != 0 && v != value) fail("{}: metadata '{}' differs between layers, which this architecture does not support", keys.file().path(), k);
    if (v != 0) value = v;
  }
  return static_cast<T>(value);
}

}  // namespace

std::optional<int64_t> GgufKeys::integer(std::string_view key) const { return one_value<int64_t>(*this, key, [&](const std::string& k) { return metadata().integer(k); }); }
std::optional<double> GgufKeys::number(std::string_view key) const { return one_value<double>(*this, key, [&](const std::string& k) { return metadata().number(k); }); }
std::optional<bool> GgufKeys::boolean(std::string_view key) const { return metadata().boolean(full(key)); }

std::vector<int64_t> GgufKeys::per_layer(std::string_view key, int64_t n_layers) const {
  const std::string k = full(key);
  const auto it = metadata().values().find(k);
  if (it == metadata().values().end()) return {};
  if (!it->second.is_array) return std::vector<int64_t>(static_cast<size_t>(n_layers), *metadata().integer(k));
  auto list = *metadata().integers(k);
  if (static_cast<int64_t>(list.size()) < n_layers) fail("{}: metadata '{}' has {} values for {} layers", file_.path(), k, list.size(), n_layers);
  list.resize(static_cast<size_t>(n_layers));
  return list;
}

int64_t GgufKeys::needed(std::string_view key, int64_t min, int64_t max) const {
  const auto v = integer(key);
  if (!v) fail("{}: metadata '{}' is missing", file_.path(), full(key));
  if (*v < min || *v > max) fail("{}: metadata '{}' is {}, not between {} and {}", file_.path(), full(key), *v, min, max);
  return *v;
}

bool GgufKeys::has_tensor(std::string_view name) const {
  for (const GgufTensor& t : file_.tensors())
    if (t.name == name) return true;
  return false;
}

void GgufPairs::put(std::string_view key, Json value) { put_general(prefix_ + std::string(key), std::move(value)); }

void GgufPairs::put_general(std::string key, Json value) {
  for (GgufPair& p : pairs_)
    if (p.key == key) {
      p.value = std::move(value);
      return;
    }
  pairs_.push_back({std::move(key), std::move(value)});
}

// Values of a configuration.

Json value_in(const Json& config, std::string_view names) {
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find('|', at), names.size());
    const auto it = config.find(names.substr(at, end - at));
    if (it != config.end() && !it->is_null()) return *it;
    at = end + 1;
  }
  return nullptr;
}

std::optional<int64_t> count_in(const Json& config, std::string_view names) {
  const Json v = value_in(config, names);
  return v.is_number_integer() ? std::optional(v.get<int64_t>()) : std::nullopt;
}

int64_t needed_count(const Json& config, std::string_view names) {
  const auto v = count_in(config, names);
  if (!v) fail("the configuration has no number '{}'", names);
  if (*v <= 0 || *v > 1 << 20) fail("the configuration's '{}' is {}", names, *v);
  return *v;
}

double rotated_share(const Json& config) {
  Json rope = value_in(config, "rope_parameters");
  if (rope.is_object() && rope.contains("full_attention")) rope = Json(rope["full_attention"]);
  Json share = rope.is_object() ? value_in(rope, "partial_rotary_factor") : Json();
  if (!share.is_number()) share = value_in(config, "partial_rotary_factor");
  const double x = share.is_number() ? share.get<double>() : 1.0;
  return x > 0 && x <= 1 ? x : 1.0;
}

}  // namespace ridge
