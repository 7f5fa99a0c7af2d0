// What the rope variants share. A variant is one file with one make function, listed in registry.cpp.
//
//   plain frequencies   theta^(-2i / n_rot) for i < n_rot / 2
#pragma once
#include <fmt/ranges.h>

#include <algorithm>

#include "model/config.h"
#include "model/rope.h"

namespace ridge::rope {

using Make = std::unique_ptr<Rope> (*)(const Config& parameters, const RopeOptions& options);

std::unique_ptr<Rope> make_default(const Config& parameters, const RopeOptions& options);
std::unique_ptr<Rope> make_linear(const Config& parameters, const RopeOptions& options);
std::unique_ptr<Rope> make_dynamic(const Config& parameters, const RopeOptions& options);
std::unique_ptr<Rope> make_yarn(const Config& parameters, const RopeOptions& options);
std::unique_ptr<Rope> make_llama3(const Config& parameters, const RopeOptions& options);
std::unique_ptr<Rope> make_proportional(const Config& parameters, const RopeOptions& options);
std::unique_ptr<Rope> make_longrope(const Config& parameters, const RopeOptions& options);

double read_theta(const Config& parameters);
double read_factor(const Config& parameters);                             // > 0; required
int read_original_context(const Config& parameters, const RopeOptions& options);

// theta^(2i / n_rot) as float32 computes it, which the golden outputs depend on in their last digits.
std::vector<float> wavelengths(float theta, int n_rot);

// A rope whose angles never change: frequencies and factor are computed once.
class FixedRope : public Rope {
 public:
  FixedRope(std::vector<float> frequencies, float factor, std::string description)
      : frequencies_(std::move(frequencies)), factor_(factor), description_(std::move(description)) {}
  int n_freqs() const override { return static_cast<int>(frequencies_.size()); }
  float frequencies(float* out, int) const override {
    std::copy(frequencies_.begin(), frequencies_.end(), out);
    return factor_;
  }
  std::string description() const override { return description_; }

 private:
  std::vector<float> frequencies_;
  float factor_;
  std::string description_;
};

}  // namespace ridge::rope
