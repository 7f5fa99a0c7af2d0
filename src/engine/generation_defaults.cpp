#include "engine/generation_defaults.h"

#include "base/error.h"

namespace ridge {
namespace {

template <class T>
void read(T& out, const Json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return;
  if (!it->is_number()) fail("generation_config.json: {} = {}: must be a number", key, it->dump());
  const double value = it->template get<double>();
  if (!(value > -1e9 && value < 1e9)) fail("generation_config.json: {} = {}: out of range", key, it->dump());
  out = T(value);
}

}  // namespace

SamplingParams defaults_from(const Json& config) {
  SamplingParams params;
  if (!config.is_object()) return params;
  read(params.temperature, config, "temperature");
  read(params.top_k, config, "top_k");
  read(params.top_p, config, "top_p");
  read(params.min_p, config, "min_p");
  read(params.typical_p, config, "typical_p");
  read(params.repetition_penalty, config, "repetition_penalty");
  const auto sample = config.find("do_sample");
  const bool says = sample != config.end() && sample->is_boolean();
  const bool samples = says ? sample->get<bool>() : config.contains("temperature") && !config["temperature"].is_null();
  if (!samples) params.temperature = 0;
  try {
    params.validate();
  } catch (const Error& error) {
    fail("generation_config.json: {}", error.what());
  }
  return params;
}

}  // namespace ridge
