// Llama 3.1: wavelengths longer than original / low_freq_factor are divided by the factor, those shorter than original / high_freq_factor stay, and between
// the two the frequency is interpolated by how many times it turns within the trained length.
#include <cmath>
#include <numbers>

#include "model/rope/variant.h"

namespace ridge::rope {

std::unique_ptr<Rope> make_llama3(const Config& parameters, const RopeOptions& options) {
  const double theta = read_theta(parameters), factor = read_factor(parameters);
  const double low = parameters.number("low_freq_factor", 1e-6, 1e6), high = parameters.number("high_freq_factor", 1e-6, 1e6);
  if (high <= low) parameters.refuse("high_freq_factor", fmt::format("it must be larger than low_freq_factor, {}", low));
  const int original = read_original_context(parameters, options);
  const auto f_low = static_cast<float>(low), f_high = static_cast<float>(high), f_factor = static_cast<float>(factor), n_positions = static_cast<float>(original);

  std::vector<float> frequencies = wavelengths(static_cast<float>(theta), options.n_rot);
  for (float& f : frequencies) {
    f = 1.0f / f;
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
    if (wavelength > n_positions / f_low) {
      f /= f_factor;
    } else if (wavelength >= n_positions / f_high) {
      const float smooth = (n_positions / wavelength - f_low) / (f_high - f_low);
      f = (1.0f - smooth) * f / f_factor + smooth * f;
    }
  }
  return std::make_unique<FixedRope>(std::move(frequencies), 1.0f, fmt::format("llama3, factor {} over {}, theta {}", factor, original, theta));
}

}  // namespace ridge::rope
