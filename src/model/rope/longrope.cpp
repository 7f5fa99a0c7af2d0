// LongRoPE: each frequency is divided by a searched factor of its own, from one list up to the trained length and from another past it: two classes.
// cos and sin are multiplied by attention_factor, or sqrt(1 + ln(factor) / ln(original)), in both.
#include <cmath>

#include "model/rope/variant.h"

namespace ridge::rope {
namespace {

class LongRope : public Rope {
 public:
  LongRope(double theta, int original, float factor, std::vector<double> short_factor, std::vector<double> long_factor)
      : theta_(theta), original_(original), factor_(factor), factors_{std::move(short_factor), std::move(long_factor)} {}

  int n_freqs() const override { return static_cast<int>(factors_[0].size()); }
  int class_of(int n_known) const override { return n_known > original_ ? 1 : 0; }

  float frequencies(float* out, int rope_class) const override {
    const std::vector<double>& factors = factors_[rope_class > 0 ? 1 : 0];
    const std::vector<float> lengths = wavelengths(static_cast<float>(theta_), 2 * n_freqs());
    for (size_t i = 0; i < factors.size(); i++) out[i] = 1.0f / (static_cast<float>(factors[i]) * lengths[i]);
    return factor_;
  }

  std::string description() const override { return fmt::format("longrope, long past {}, theta {}", original_, theta_); }

 private:
  double theta_;
  int original_;
  float factor_;
  std::vector<double> factors_[2];                              // short, long
};

}  // namespace

std::unique_ptr<Rope> make_longrope(const Config& parameters, const RopeOptions& options) {
  const int original = read_original_context(parameters, options);
  const double factor = parameters.number_or("factor", static_cast<double>(options.max_context) / original, 1e-6, 1e6);
  if (original < 2) parameters.refuse("original_max_position_embeddings", "at least 2 is needed");
  const double inferred = factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  const auto n = static_cast<size_t>(options.n_rot / 2);
  return std::make_unique<LongRope>(read_theta(parameters), original, static_cast<float>(parameters.number_or("attention_factor", inferred, 0, 1e3)),
                                    parameters.numbers("short_factor", n, 1e-6, 1e6), parameters.numbers("long_factor", n, 1e-6, 1e6));
}

}  // namespace ridge::rope
