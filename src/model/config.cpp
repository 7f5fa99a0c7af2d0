#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace ridge {
namespace {

// Values in messages, cut short: a hostile config may hold a megabyte here.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

struct NamedActivation { std::string_view name; ActKind kind; };
constexpr NamedActivation kActivations[] = {
    {"silu", ActKind::silu},           {"swish", ActKind::silu},          {"gelu_pytorch_tanh", ActKind::gelu_tanh}, {"gelu_new", ActKind::gelu_tanh},
    {"gelu_fast", ActKind::gelu_tanh}, {"gelu", ActKind::gelu_erf},       {"gelu_python", ActKind::gelu_erf},        {"relu", ActKind::relu},
    {"relu2", ActKind::relu2},
};

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) row[j] = static_cast<int>(j);
  for (size_t i = 0; i < a.size(); i++) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < b.size(); j++) {
      const int replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

const Json* Config::find(std::string_view key) const {
  const auto it = json_->is_object() ? json_->find(key) : json_->end();
  return json_->is_object() && it != json_->end() && !it->is_null() ? &*it : nullptr;
}

const Json& Config::at(std::string_view key) const {
  if (const Json* value = find(key)) return *value;
  fail("{}: key \"{}\" is missing; take the config.json that the model was published with", where_, key);
}

double Config::checked(std::string_view key, const Json& value, double least, double most, bool whole) const {
  if (!value.is_number()) fail("{}: key \"{}\" is {}, not a number", where_, key, shown(value));
  const double number = value.get<double>();
  if (!std::isfinite(number) || (whole && number != std::floor(number))) fail("{}: key \"{}\" is {}, not a {} number", where_, key, shown(value), whole ? "whole" : "finite");
  if (number < least || number > most) fail("{}: key \"{}\" is {}, outside of {} to {}", where_, key, shown(value), least, most);
  return number;
}

int Config::integer(std::string_view key, int64_t least, int64_t most) const {
  const int64_t largest = std::min<int64_t>(most, std::numeric_limits<int>::max());
  return static_cast<int>(checked(key, at(key), static_cast<double>(least), static_cast<double>(largest), true));
}

int Config::integer_or(std::string_view key, int fallback, int64_t least, int64_t most) const { return has(key) ? integer(key, least, most) : fallback; }

double Config::number(std::string_view key, double least, double most) const { return checked(key, at(key), least, most, false); }

double Config::number_or(std::string_view key, double fallback, double least, double most) const { return has(key) ? number(key, least, most) : fallback; }

bool Config::flag_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) fail("{}: key \"{}\" is {}, not true or false", where_, key, shown(*value));
  return value->get<bool>();
}

std::string Config::text(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_string()) fail("{}: key \"{}\" is {}, not a string", where_, key, shown(value));
  return value.get<std::string>();
}

std::string Config::text_or(std::string_view key, std::string fallback) const { return has(key) ? text(key) : fallback; }

std::vector<double> Config::numbers(std::string_view key, size_t n, double least, double most) const {
  const Json& value = at(key);
  if (!value.is_array()) fail("{}: key \"{}\" is {}, not a list", where_, key, shown(value));
  if (value.size() != n) fail("{}: key \"{}\" has {} entries where {} are needed", where_, key, value.size(), n);
  std::vector<double> out;
  for (const Json& entry : value) out.push_back(checked(key, entry, least, most, false));
  return out;
}

std::vector<int> Config::integers(std::string_view key, int64_t least, int64_t most) const {
  std::vector<int> out;
  if (!has(key)) return out;
  const Json& value = at(key);
  if (!value.is_array()) fail("{}: key \"{}\" is {}, not a list", where_, key, shown(value));
  for (const Json& entry : value) out.push_back(static_cast<int>(checked(key, entry, static_cast<double>(least), static_cast<double>(most), true)));
  return out;
}

std::vector<std::string> Config::texts(std::string_view key, size_t n) const {
  const Json& value = at(key);
  if (!value.is_array()) fail("{}: key \"{}\" is {}, not a list", where_, key, shown(value));
  if (value.size() != n) fail("{}: key \"{}\" has {} entries where {} are needed", where_, key, value.size(), n);
  std::vector<std::string> out;
  for (const Json& entry : value) {
    if (!entry.is_string()) fail("{}: key \"{}\" holds {}, not a string", where_, key, shown(entry));
    out.push_back(entry.get<std::string>());
  }
  return out;
}

Config Config::section(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_object()) fail("{}: key \"{}\" is {}, not an object", where_, key, shown(value));
  return Config(value, fmt::format("{}, {}", where_, key));
}

void Config::refuse_unless(std::string_view key, const Json& only) const {
  if (const Json* value = find(key); value && *value != only) refuse(key, fmt::format("only {} is supported", shown(only)));
}

void Config::refuse(std::string_view key, std::string_view why) const {
  const Json* value = find(key);
  fail("{}: key \"{}\" is {}: {}", where_, key, value ? shown(*value) : "absent", why);
}

Shape read_shape(const Config& config, const ShapeDefaults& defaults) {
  Shape s{};
  s.n_vocab = config.integer("vocab_size", 1, 1 << 24);
  s.d_model = config.integer("hidden_size", 1, 1 << 17);
  s.n_layers = config.integer("num_hidden_layers", 1, 2048);
  s.n_heads = config.integer("num_attention_heads", 1, 4096);
  s.n_kv_heads = config.integer_or("num_key_value_heads", defaults.n_kv_heads ? defaults.n_kv_heads : s.n_heads, 1, 4096);
  s.head_dim = config.integer_or("head_dim", defaults.head_dim ? defaults.head_dim : s.d_model / s.n_heads, 1, 4096);
  s.d_ff = config.integer("intermediate_size", 1, 1 << 20);
  s.max_context = config.integer_or("max_position_embeddings", defaults.max_context, 1, 1 << 28);
  s.eps = static_cast<float>(config.number_or(defaults.eps_key, defaults.eps, 0.0, 1.0));
  if (s.head_dim < 1) config.refuse("num_attention_heads", fmt::format("more heads than hidden_size, {}, has dimensions", s.d_model));
  if (s.n_heads % s.n_kv_heads != 0) config.refuse("num_key_value_heads", fmt::format("it must divide num_attention_heads, {}", s.n_heads));
  return s;
}

ActKind read_activation(const Config& config, std::string_view key, std::string_view fallback) {
  const std::string name = config.text_or(key, std::string(fallback));
  for (const NamedActivation& a : kActivations)
    if (a.name == name) return a.kind;
  std::string known;
  for (const NamedActivation& a : kActivations) known += (known.empty() ? "" : ", ") + std::string(a.name);
  config.refuse(key, "known activations are " + known);
}

std::optional<std::vector<bool>> read_layer_types(const Config& config, int n_layers) {
  if (!config.has("layer_types")) return std::nullopt;
  std::vector<bool> slides;
  for (const std::string& type : config.texts("layer_types", static_cast<size_t>(n_layers))) {
    if (type != "full_attention" && type != "sliding_attention") config.refuse("layer_types", "only full_attention and sliding_attention are supported in this family");
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

int read_window(const Config& config, int fallback) {
  const bool is_null = config.json().contains("sliding_window") && !config.has("sliding_window");
  return is_null ? 0 : config.integer_or("sliding_window", fallback, 1, 1 << 30);
}

Json read_rope_parameters(const Config& config, std::string_view layer_type, double default_theta, double default_partial) {
  Json parameters = Json::object();
  bool by_layer_type = false;
  if (config.has("rope_parameters")) {
    const Config all = config.section("rope_parameters");
    by_layer_type = all.has("full_attention") || all.has("sliding_attention");
    if (by_layer_type && layer_type.empty()) config.refuse("rope_parameters", "this family has one rotary embedding for all layers, not one per layer type");
    if (!by_layer_type && layer_type != "sliding_attention") parameters = all.json();
    else if (by_layer_type && all.has(layer_type)) parameters = all.section(layer_type).json();
  }
  const Config given(parameters, config.where() + ", rope_parameters");
  if (!given.has("rope_type")) parameters["rope_type"] = given.text_or("type", "default");
  const std::string_view theta_key = layer_type == "sliding_attention" ? "rope_local_base_freq" : "rope_theta";
  if (!given.has("rope_theta")) parameters["rope_theta"] = config.number_or(theta_key, default_theta, 1e-3, 1e12);
  if (!given.has("partial_rotary_factor")) parameters["partial_rotary_factor"] = config.number_or("partial_rotary_factor", default_partial, 0.0, 1.0);
  // A value outside of the section wins over one inside: Phi-3 keeps the length of its first training there.
  if (!by_layer_type && config.has("original_max_position_embeddings"))
    parameters["original_max_position_embeddings"] = config.integer("original_max_position_embeddings", 1, 1 << 28);
  else if (!given.has("original_max_position_embeddings") && config.has("max_position_embeddings"))
    parameters["original_max_position_embeddings"] = config.integer("max_position_embeddings", 1, 1 << 28);
  return parameters;
}

std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known, size_t n) {
  const std::string_view start = name.substr(0, 64);
  std::vector<std::pair<int, std::string>> ranked;
  for (const std::string& k : known) ranked.emplace_back(edit_distance(start, k), k);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(n, ranked.size()); i++) out.push_back(ranked[i].second);
  return out;
}

}  // namespace ridge
