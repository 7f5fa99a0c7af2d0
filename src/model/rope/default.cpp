// The original rotary embedding: frequency i is theta^(-2i / n_rot).
#include "model/rope/variant.h"

namespace ridge::rope {

std::unique_ptr<Rope> make_default(const Config& parameters, const RopeOptions& options) {
  const double theta = read_theta(parameters);
  std::vector<float> frequencies = wavelengths(static_cast<float>(theta), options.n_rot);
  for (float& f : frequencies) f = 1.0f / f;
  return std::make_unique<FixedRope>(std::move(frequencies), 1.0f, fmt::format("default, theta {}", theta));
}

}  // namespace ridge::rope
