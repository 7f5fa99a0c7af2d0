#include "plan/token_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

constexpr int kStateEvery = 64;              // positions between two checkpoints of a recurrent state

// Positions of one layer that a token reads when it is the last of `context`.
int64_t positions_seen(const KvSpec& spec, int context) {
  return spec.window > 0 ? std::min<int64_t>(context, int64_t{spec.window} + spec.sinks) : context;
}

KvGroupCost cost_of_group(const KvGroupLayout& group, int context) {
  const KvSpec& spec = group.spec;
  const auto n_layers = static_cast<int64_t>(group.handles.size());
  KvGroupCost cost{.policy = policy_of(spec), .n_layers = static_cast<int>(n_layers)};
  for (const KvPlane& plane : spec.planes) {
    const int64_t entry = entry_bytes(plane) * n_layers;
    if (spec.kind == KvKind::recurrent) {
      // A state lasts for a block of positions; entries since then are as many as half a block in the mean, and at most a block is held.
      const bool is_state = plane.every > 1;
      cost.bytes_held += entry * (is_state ? 1 : kStateEvery);
      cost.bytes_read += static_cast<double>(entry) * (is_state ? 1.0 : kStateEvery / 2.0);
    } else {
      cost.bytes_per_token += entry / plane.every;
      cost.bytes_held += entry * positions_seen(spec, context) / plane.every;
      cost.bytes_read += static_cast<double>(entry * positions_seen(spec, context) / plane.every);
    }
  }
  return cost;
}

}  // namespace

std::string policy_of(const KvSpec& spec) {
  if (spec.kind == KvKind::recurrent) return "recurrent";
  if (spec.window == 0) return "full";
  return spec.sinks > 0 ? fmt::format("window {} and the first {}", spec.window, spec.sinks) : fmt::format("window {}", spec.window);
}

std::vector<std::string> kv_policies() { return {"full", "window", "sink window", "recurrent"}; }

TokenCost cost_of_token(const Model& model, int context, int batch) {
  TokenCost cost{.context = context, .batch = std::max(1, batch)};
  for (const ComponentSize& size : model.sizes) {
    const double touched = size.active < 1 ? 1 - std::pow(1 - size.active, cost.batch) : 1.0;
    ComponentCost c{.component = size.component, .n_params = size.n_params, .n_active = std::llround(static_cast<double>(size.n_params) * size.active), .bytes = size.bytes};
    c.bytes_per_token = size.streamed ? static_cast<double>(size.bytes) * touched / cost.batch
                                      : size.n_rows > 0 ? static_cast<double>(size.bytes) / static_cast<double>(size.n_rows) : 0.0;
    cost.n_params += c.n_params;
    cost.n_active += c.n_active;
    if (size.streamed) cost.n_streamed += c.n_active + size.n_shared;
    cost.weight_bytes += size.n_shared > 0 ? 0 : size.bytes;             // a tied head's bytes are the embedding's
    cost.weights_per_token += c.bytes_per_token;
    cost.components.push_back(std::move(c));
  }
  for (const KvGroupLayout& group : group_specs(model.kv_specs, 64)) {
    cost.kv_groups.push_back(cost_of_group(group, context));
    cost.kv_bytes_per_token += cost.kv_groups.back().bytes_per_token;
    cost.kv_per_token += cost.kv_groups.back().bytes_read;
  }
  return cost;
}

}  // namespace ridge
