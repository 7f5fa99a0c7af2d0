// What rounding did, by component of the model: numbers, bytes before and after, and the relative error sqrt(sum (x - x')^2 / sum x^2).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/format.h"

namespace ridge {

struct ComponentError {
  std::string component;                               // "embedding", "attention", "mlp", "norms", "head", "mtp", "other"
  std::map<std::string, int> formats;                  // name -> tensors
  int n_tensors = 0;
  int64_t n_params = 0, bytes_before = 0, bytes_after = 0;
  double squared_error = 0, squared_sum = 0;
  double relative_error() const;
};

class QuantizeReport {
 public:
  ComponentError& of(const std::string& tensor_name);
  const std::vector<ComponentError>& components() const { return components_; }
  ComponentError total() const;

 private:
  std::vector<ComponentError> components_;             // in order of first appearance
};

// The part of the model a tensor belongs to, by Hugging Face's name.
std::string component_of(const std::string& tensor_name);

}  // namespace ridge
