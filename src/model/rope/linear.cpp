// Position interpolation: all frequencies divided by the factor.
#include "model/rope/variant.h"

namespace ridge::rope {

std::unique_ptr<Rope> make_linear(const Config& parameters, const RopeOptions& options) {
  const double theta = read_theta(parameters), factor = read_factor(parameters);
  std::vector<float> frequencies = wavelengths(static_cast<float>(theta), options.n_rot);
  for (float& f : frequencies) f = 1.0f / f / static_cast<float>(factor);
  return std::make_unique<FixedRope>(std::move(frequencies), 1.0f, fmt::format("linear, factor {}, theta {}", factor, theta));
}

}  // namespace ridge::rope
