#include "model/modules/recurrent.h"

#include <cmath>

namespace ridge {

Shape read_recurrent_shape(const Config& config) {
  return {.n_vocab = config.integer("vocab_size", 1, 1 << 24), .d_model = config.integer("hidden_size", 1, 1 << 17),
          .n_layers = config.integer("num_hidden_layers", 1, 2048),
          .n_heads = 1, .n_kv_heads = 1, .head_dim = 1, .d_ff = 1, .max_context = 1 << 20, .eps = static_cast<float>(config.number_or("layer_norm_epsilon",
                                                                                                                                      1e-5, 0, 1))};
}

std::vector<bool> read_linear_layers(const Config& config, int n_layers, const std::function<bool(int)>& by_default) {
  std::vector<bool> linear;
  if (!config.has("layer_types")) {
    for (int i = 0; i < n_layers; i++) linear.push_back(by_default(i));
    return linear;
  }
  for (const std::string& type : config.texts("layer_types", static_cast<size_t>(n_layers))) {
    linear.push_back(type == "linear_attention" || type == "mamba");
    if (!linear.back() && type != "full_attention" && type != "attention")
      config.refuse("layer_types", "only linear_attention (mamba) and full_attention (attention) are known here");
  }
  return linear;
}

int add_scan_kv(Construction& c, int n_heads, int n_k_heads, int dk, int dv, int n_decays) {
  c.model.kv_specs.push_back({.kind = KvKind::recurrent,
                              .planes = {KvPlane{.n_heads = n_heads, .head_dim = dk * dv, .every = 64}, KvPlane{.n_heads = n_k_heads, .head_dim = dk},
                                         KvPlane{.n_heads = n_heads, .head_dim = dv}, KvPlane{.n_heads = n_heads, .head_dim = n_decays}}});
  return static_cast<int>(c.model.kv_specs.size()) - 1;
}

std::vector<float> negative_exp(Construction& c, const std::string& name, int64_t n) {
  std::vector<float> values = c.weights.values(name, n);
  for (float& v : values) v = -std::exp(v);
  return values;
}

void GatedNorm::run(Pass& pass, Tensor x, Tensor gate) const {
  const Activate gated{.out = x, .gate = gate, .up = x, .kind = act};
  if (gate_first || !weight) pass.run(gated);
  if (!weight) return;
  pass.run(HeadNorm{.x = x, .weight = weight, .n_heads = n_groups, .eps = eps});
  if (!gate_first) pass.run(gated);
}

}  // namespace ridge
