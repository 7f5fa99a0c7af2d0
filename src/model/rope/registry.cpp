// The rope variants by rope_type, and what they share.
#include <cmath>

#include "base/error.h"
#include "model/rope/variant.h"

namespace ridge {
namespace {

struct Entry { std::string_view type; rope::Make make; };
constexpr Entry kVariants[] = {
    {"default", rope::make_default}, {"linear", rope::make_linear},     {"dynamic", rope::make_dynamic},
    {"yarn", rope::make_yarn},       {"llama3", rope::make_llama3},     {"longrope", rope::make_longrope},
    {"su", rope::make_longrope},     {"proportional", rope::make_proportional},
};

}  // namespace

double rope::read_theta(const Config& parameters) { return parameters.number("rope_theta", 1e-3, 1e12); }

double rope::read_factor(const Config& parameters) { return parameters.number("factor", 1e-6, 1e6); }

int rope::read_original_context(const Config& parameters, const RopeOptions& options) {
  return parameters.integer_or("original_max_position_embeddings", options.max_context, 1, 1 << 28);
}

std::vector<float> rope::wavelengths(float theta, int n_rot) {
  std::vector<float> out;
  for (int i = 0; i < n_rot; i += 2) out.push_back(std::pow(theta, static_cast<float>(i) / static_cast<float>(n_rot)));
  return out;
}

std::unique_ptr<Rope> make_rope(const Json& parameters, const RopeOptions& options) {
  const Config config(parameters, "rope_parameters");
  const std::string type = config.text_or("rope_type", config.text_or("type", "default"));
  if (options.n_rot < 2 || options.n_rot % 2 != 0) fail("rope_parameters: {} rotated dimensions of a head; an even number of at least 2 is needed", options.n_rot);
  for (const Entry& v : kVariants)
    if (v.type == type) return v.make(config, options);
  config.refuse("rope_type", fmt::format("known types are {}", fmt::join(known_rope_types(), ", ")));
}

std::vector<std::string> known_rope_types() {
  std::vector<std::string> types;
  for (const Entry& v : kVariants) types.emplace_back(v.type);
  return types;
}

}  // namespace ridge
