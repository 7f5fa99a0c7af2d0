// Access to the two sides of the tables: metadata of one architecture, to be read and to be written, and keys of a configuration.
#include <cmath>

#include "base/error.h"
#include "files/gguf/architecture.h"

namespace ridge {
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
