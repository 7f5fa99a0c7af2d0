// Typed access to config.json. A config is untrusted: every value is checked for its type and range, and an Error names the key, the value and what would work.
// Null counts as absent, as Hugging Face has it.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/op.h"
#include "base/json.h"

namespace ridge {

class Config {
 public:
  // `where` opens every message: "config.json of llama". The json outlives the Config.
  Config(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {}

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Json& json() const { return *json_; }
  const std::string& where() const { return where_; }

  int integer(std::string_view key, int64_t least, int64_t most) const;                       // required
  int integer_or(std::string_view key, int fallback, int64_t least, int64_t most) const;
  double number(std::string_view key, double least, double most) const;
  double number_or(std::string_view key, double fallback, double least, double most) const;
  bool flag_or(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string fallback) const;
  std::vector<double> numbers(std::string_view key, size_t n, double least, double most) const;   // exactly n
  std::vector<int> integers(std::string_view key, int64_t least, int64_t most) const;             // as many as there are; none when absent
  std::vector<std::string> texts(std::string_view key, size_t n) const;
  Config section(std::string_view key) const;                                                 // an object

  // For keys that change the result and that a family does not handle: absent or equal to `only`, or refused.
  void refuse_unless(std::string_view key, const Json& only) const;
  // Message of a value that is understood and not supported.
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  const Json* find(std::string_view key) const;                                               // null when absent
  const Json& at(std::string_view key) const;                                                 // Error when absent
  double checked(std::string_view key, const Json& value, double least, double most, bool whole) const;

  const Json* json_;
  std::string where_;
};

// What every dense family states, under its most common names.
struct Shape {
  int n_vocab, d_model, n_layers, n_heads, n_kv_heads, head_dim, d_ff, max_context;
  float eps;
};

// Values that differ between families when a config leaves them out; 0 means: n_heads, d_model / n_heads.
struct ShapeDefaults {
  int n_kv_heads = 0, head_dim = 0, max_context = 2048;
  double eps = 1e-6;
  std::string_view eps_key = "rms_norm_eps";
};
Shape read_shape(const Config& config, const ShapeDefaults& defaults);

// The activation named by `key`; unknown ones are refused with those known.
ActKind read_activation(const Config& config, std::string_view key, std::string_view fallback);

// Window of each layer (0: all positions) from `layer_types` and `sliding_window`; where there are no layer_types, layer i slides when `slides(i)`.
template <class Slides>
std::vector<int> read_windows(const Config& config, int n_layers, int default_window, Slides slides);
std::optional<std::vector<bool>> read_layer_types(const Config& config, int n_layers);        // true: sliding_attention
int read_window(const Config& config, int fallback);                                          // 0: null or absent without a fallback

template <class Slides>
std::vector<int> read_windows(const Config& config, int n_layers, int default_window, Slides slides) {
  const auto types = read_layer_types(config, n_layers);
  std::vector<int> windows(static_cast<size_t>(n_layers), 0);
  for (int i = 0; i < n_layers; i++) {
    if (!(types ? (*types)[static_cast<size_t>(i)] : slides(i))) continue;
    windows[static_cast<size_t>(i)] = read_window(config, default_window);
    if (windows[static_cast<size_t>(i)] == 0) config.refuse("sliding_window", "layers of sliding_attention need a number of positions");
  }
  return windows;
}

// Parameters of the rotary embedding of a layer type ("full_attention", "sliding_attention", or "" where all layers share one), with Hugging Face's
// defaults filled in: rope_type, rope_theta, original_max_position_embeddings, partial_rotary_factor. Where a config has one section for all, it is that of
// the full layers; sliding ones are plain, with rope_local_base_freq or default_theta.
Json read_rope_parameters(const Config& config, std::string_view layer_type, double default_theta, double default_partial = 1.0);

// The n known names nearest to `name` by edit distance, for messages.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known, size_t n);

}  // namespace ridge
