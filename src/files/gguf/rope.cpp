#include "files/gguf/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace ridge {
namespace {

bool nearly_equal(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::fabs(a[i] - b[i]) > 1e-4f * std::fabs(a[i])) return false;
  return true;
}

}  // namespace

Json rope_section(const GgufKeys& r, const Json& config, const GgufRopeFactors& rope) {
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
    if (rope.long_factor.size() != rope.short_factor.size()) fail("{}: rope_factors_long and rope_factors_short differ in length", r.file().path());
    section["rope_type"] = "longrope";
    section["long_factor"] = rope.long_factor;
    section["short_factor"] = rope.short_factor;
    if (const auto attention = r.number("rope.scaling.attn_factor")) section["attention_factor"] = *attention;
    section["original_max_position_embeddings"] = original.value_or(context);
    if (original && *original > 0) section["factor"] = static_cast<double>(context) / static_cast<double>(*original);
    return section;
  }
  if (type == "none" || type.empty()) return section;
  if (type != "linear" && type != "yarn") fail("{}: metadata '{}' is '{}'; known are none, linear, yarn and longrope (with its factors)", r.file().path(), r.full("rope.scaling.type"), type);
  section["rope_type"] = type;
  section["factor"] = factor.value_or(1.0);
  if (original) section["original_max_position_embeddings"] = *original;
  if (const auto v = r.number("rope.scaling.yarn_attn_factor")) section["attention_factor"] = *v;
  if (const auto v = r.number("rope.scaling.yarn_beta_fast")) section["beta_fast"] = *v;
  if (const auto v = r.number("rope.scaling.yarn_beta_slow")) section["beta_slow"] = *v;
  return section;
}

void write_rope(const Json& config, int64_t head_dim, GgufPairs& pairs) {
  Json rope = config.value("rope_parameters", Json::object());
  if (rope.contains("full_attention")) rope = Json(rope["full_attention"]);
  pairs.put("rope.freq_base", rope.value("rope_theta", 10000.0));
  const double rotated = rope.value("partial_rotary_factor", 1.0);
  pairs.put("rope.dimension_count", static_cast<int64_t>(rotated * static_cast<double>(head_dim)));
  const std::string type = rope.value("rope_type", "default");
  if (type == "linear" || type == "yarn") {
    pairs.put("rope.scaling.type", type);
    pairs.put("rope.scaling.factor", rope.value("factor", 1.0));
    if (type == "yarn") pairs.put("rope.scaling.original_context_length", rope.value("original_max_position_embeddings", config.value("max_position_embeddings", int64_t{0})));
    if (rope.contains("attention_factor") && rope["attention_factor"].is_number()) pairs.put("rope.scaling.yarn_attn_factor", rope["attention_factor"].get<double>());
    if (rope.contains("beta_fast")) pairs.put("rope.scaling.yarn_beta_fast", rope["beta_fast"].get<double>());
    if (rope.contains("beta_slow")) pairs.put("rope.scaling.yarn_beta_slow", rope["beta_slow"].get<double>());
  } else if (type == "longrope") {
    const double context = config.value("max_position_embeddings", 0.0), original = rope.value("original_max_position_embeddings", context);
    pairs.put("rope.scaling.type", "longrope");
    pairs.put("rope.scaling.original_context_length", static_cast<int64_t>(original));
    const double scale = rope.contains("factor") && rope["factor"].is_number() ? rope["factor"].get<double>() : original > 0 ? context / original : 1.0;
    const double usual = scale > 1 && original > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1.0;
    pairs.put("rope.scaling.attn_factor", rope.contains("attention_factor") && rope["attention_factor"].is_number() ? rope["attention_factor"].get<double>() : usual);
  }
}

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
  } else if (type == "proportional") {
    // Gemma 4's full layers: all frequencies of the head, of which the first ones turn.
    int64_t head_dim = needed_count(config, "head_dim");
    if (const auto full = count_in(config, "global_head_dim")) head_dim = *full;
    const Json layers = value_in(config, "per_layer_config");
    if (layers.is_object())
      for (const auto& [layer, own] : layers.items())
        if (const auto d = count_in(own, "head_dim")) head_dim = *d;
    const auto n = static_cast<size_t>(head_dim / 2), turning = static_cast<size_t>(static_cast<double>(head_dim) * rope.value("partial_rotary_factor", 1.0) / 2);
    factors.freqs.assign(n, 1e30f);
    std::fill_n(factors.freqs.begin(), std::min(n, turning), 1.0f);
  } else if (type == "longrope") {
    factors.long_factor = rope.at("long_factor").get<std::vector<float>>();
    factors.short_factor = rope.at("short_factor").get<std::vector<float>>();
  }
  return factors;
}

}  // namespace ridge
