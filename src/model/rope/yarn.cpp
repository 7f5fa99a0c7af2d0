// YaRN: frequencies that turn often within the trained length stay, those that turn rarely are divided by the factor, with a linear ramp between.
// The ramp runs over the index of the frequency, from the one that turns beta_fast times to the one that turns beta_slow times. cos and sin are multiplied by
// attention_factor, or 0.1 ln(factor) + 1, or the ratio of the two that mscale and mscale_all_dim give.
#include <cmath>
#include <numbers>

#include "model/rope/variant.h"

namespace ridge::rope {
namespace {

double magnitude(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

// Index (not whole) of the frequency that turns n_turns times within n_positions.
double index_of_turns(double n_turns, int n_rot, double theta, double n_positions) {
  return n_rot * std::log(n_positions / (n_turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

}  // namespace

std::unique_ptr<Rope> make_yarn(const Config& parameters, const RopeOptions& options) {
  const double theta = parameters.number("rope_theta", 1.001, 1e12);
  const int original = read_original_context(parameters, options), n_rot = options.n_rot;
  const double factor = parameters.number_or("factor", static_cast<double>(options.max_context) / original, 1e-6, 1e6);
  const double mscale = parameters.number_or("mscale", 0, 0, 1e3), mscale_all_dim = parameters.number_or("mscale_all_dim", 0, 0, 1e3);
  const double inferred = mscale > 0 && mscale_all_dim > 0 ? magnitude(factor, mscale) / magnitude(factor, mscale_all_dim) : magnitude(factor, 1);
  const double attention_factor = parameters.number_or("attention_factor", inferred, 0, 1e3);
  const double fast = parameters.number_or("beta_fast", 32, 0, 1e6), slow = parameters.number_or("beta_slow", 1, 0, 1e6);

  double low = index_of_turns(fast > 0 ? fast : 32, n_rot, theta, original), high = index_of_turns(slow > 0 ? slow : 1, n_rot, theta, original);
  if (parameters.flag_or("truncate", true)) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, n_rot - 1.0);
  if (low == high) high += 0.001;

  std::vector<float> frequencies = wavelengths(static_cast<float>(theta), n_rot);
  for (size_t i = 0; i < frequencies.size(); i++) {
    const float kept = 1.0f - std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    frequencies[i] = 1.0f / (static_cast<float>(factor) * frequencies[i]) * (1.0f - kept) + 1.0f / frequencies[i] * kept;
  }
  return std::make_unique<FixedRope>(std::move(frequencies), static_cast<float>(attention_factor), fmt::format("yarn, factor {} over {}, theta {}", factor, original, theta));
}

}  // namespace ridge::rope
