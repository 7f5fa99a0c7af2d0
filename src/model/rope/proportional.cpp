// Proportional rotation (Gemma 4): frequencies spread over the whole head, of which only the first part turns; the others are 0. (A partial rotation proper
// spreads them over the rotated part.)
#include "model/rope/variant.h"

namespace ridge::rope {

std::unique_ptr<Rope> make_proportional(const Config& parameters, const RopeOptions& options) {
  const double theta = read_theta(parameters), factor = parameters.number_or("factor", 1.0, 1e-6, 1e6), part = parameters.number_or("partial_rotary_factor", 1.0, 0.0, 1.0);
  const auto n_turning = static_cast<size_t>(part * options.n_rot / 2);
  std::vector<float> frequencies = wavelengths(static_cast<float>(theta), options.n_rot);
  for (size_t i = 0; i < frequencies.size(); i++) frequencies[i] = i < n_turning ? 1.0f / frequencies[i] / static_cast<float>(factor) : 0.0f;
  return std::make_unique<FixedRope>(std::move(frequencies), 1.0f, fmt::format("proportional, {} of {} frequencies, theta {}", n_turning, options.n_rot / 2, theta));
}

}  // namespace ridge::rope
