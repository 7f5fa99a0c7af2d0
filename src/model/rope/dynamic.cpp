// Dynamic NTK: past the trained length L, theta grows with the length n of the sequence so that the slowest frequency spans it:
//   theta' = theta * (factor * n / L - (factor - 1)) ^ (n_rot / (n_rot - 2))
// Every n has angles of its own, so following it exactly means recomputing the whole sequence with every token. By default the angles are those of a length
// class: n is rounded up to L * 2^class, and a sequence is recomputed only when it doubles. Exact: the class is n itself (0 up to L).
#include <cmath>

#include "base/error.h"
#include "model/rope/variant.h"

namespace ridge::rope {
namespace {

class DynamicRope : public Rope {
 public:
  DynamicRope(double theta, double factor, const RopeOptions& options) : theta_(theta), factor_(factor), options_(options) {}

  int n_freqs() const override { return options_.n_rot / 2; }

  int class_of(int n_known) const override {
    if (n_known <= options_.max_context) return 0;
    if (options_.dynamic_exact) return n_known;
    int rope_class = 0;
    while ((int64_t{options_.max_context} << rope_class) < n_known) rope_class++;
    return rope_class;
  }

  float frequencies(float* out, int rope_class) const override {
    const auto limit = static_cast<float>(options_.max_context), factor = static_cast<float>(factor_);
    float length = limit;
    if (rope_class > 0) length = options_.dynamic_exact ? static_cast<float>(rope_class) : std::ldexp(limit, rope_class);
    const float exponent = static_cast<float>(options_.n_rot) / static_cast<float>(options_.n_rot - 2);
    const float theta = static_cast<float>(theta_) * std::pow(factor * length / limit - (factor - 1.0f), exponent);
    const std::vector<float> lengths = wavelengths(theta, options_.n_rot);
    for (size_t i = 0; i < lengths.size(); i++) out[i] = 1.0f / lengths[i];
    return 1.0f;
  }

  std::string description() const override {
    return fmt::format("dynamic NTK, factor {} past {}, theta {}{}", factor_, options_.max_context, theta_, options_.dynamic_exact ? ", exact" : "");
  }

 private:
  double theta_, factor_;
  RopeOptions options_;
};

}  // namespace

std::unique_ptr<Rope> make_dynamic(const Config& parameters, const RopeOptions& options) {
  if (options.n_rot <= 2) fail("rope_parameters: dynamic NTK needs more than 2 rotated dimensions of a head, not {}", options.n_rot);
  return std::make_unique<DynamicRope>(read_theta(parameters), parameters.number("factor", 1.0, 1e6), options);
}

}  // namespace ridge::rope
