// What the recurrent mixers share: the KV of a matrix state, rates of decay from their logarithms, and what stands between the scan and the projection out:
// a norm in groups and a gate, in either order.
#pragma once
#include <functional>

#include "model/construction.h"

namespace ridge {

// Sizes of a model that has neither attention nor feed-forward parts, and no positions: its context is as long as one likes.
Shape read_recurrent_shape(const Config& config);
// Which layers are recurrent, from layer_types; where there are none, those for which by_default(layer) says so.
std::vector<bool> read_linear_layers(const Config& config, int n_layers, const std::function<bool(int)>& by_default);

// Pages of LinearScan: checkpoint, k, u, sums of log decays (n_decays a head). Returns the handle.
int add_scan_kv(Construction& c, int n_heads, int n_k_heads, int dk, int dv, int n_decays);

// -exp of a tensor of n numbers.
std::vector<float> negative_exp(Construction& c, const std::string& name, int64_t n);

struct GatedNorm {
  Tensor weight;                             // [1, group] or [1, groups * group]; empty: no norm
  int n_groups = 1;
  float eps = 0;
  bool gate_first = false;                   // norm(x * act(gate)); else norm(x) * act(gate)
  ActKind act = ActKind::silu;
  void run(Pass& pass, Tensor x, Tensor gate) const;
};

}  // namespace ridge
