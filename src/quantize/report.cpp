#include "quantize/report.h"

#include <cmath>

namespace ridge {

double ComponentError::relative_error() const { return squared_sum > 0 ? std::sqrt(squared_error / squared_sum) : 0; }

std::string component_of(const std::string& name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (name.starts_with("mtp.") || has(".mtp.")) return "mtp";
  if (has("embed_tokens") || has("wte.") || has("wpe.") || has("embeddings")) return "embedding";
  if (has("lm_head")) return "head";
  if (has("norm") || has("ln_1") || has("ln_2") || has("ln_f")) return "norms";
  if (has("attn") || has("attention")) return "attention";
  if (has("mlp") || has("feed_forward") || has("experts")) return "mlp";
  return "other";
}

ComponentError& QuantizeReport::of(const std::string& tensor_name) {
  const std::string component = component_of(tensor_name);
  for (ComponentError& c : components_)
    if (c.component == component) return c;
  return components_.emplace_back(ComponentError{.component = component});
}

ComponentError QuantizeReport::total() const {
  ComponentError total{.component = "all"};
  for (const ComponentError& c : components_) {
    total.n_tensors += c.n_tensors;
    total.n_params += c.n_params;
    total.bytes_before += c.bytes_before;
    total.bytes_after += c.bytes_after;
    total.squared_error += c.squared_error;
    total.squared_sum += c.squared_sum;
    for (const auto& [format, n] : c.formats) total.formats[format] += n;
  }
  return total;
}

}  // namespace ridge
