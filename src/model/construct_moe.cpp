// Construction of a mixture of experts: finds out how the file stores the experts, and checks what the options promise.
#include "base/error.h"
#include "model/construction.h"
#include "model/modules/mlp.h"
#include "model/modules/moe.h"

namespace ridge {
namespace {

void check(const Config& config, const MoeOptions& o) {
  const auto refuse = [&](const std::string& why) { fail("{}: {}", config.where(), why); };
  if (o.n_experts < 1 || o.d_ff < 1) refuse(fmt::format("a mixture of {} experts of width {} is none", o.n_experts, o.d_ff));
  if (o.top_k < 1 || o.top_k > o.n_experts + o.n_idle) refuse(fmt::format("{} experts for a token, but there are {}", o.top_k, o.n_experts + o.n_idle));
  const int n = o.n_experts + o.n_idle;
  if (o.n_groups < 1 || n % o.n_groups != 0) refuse(fmt::format("{} experts cannot be cut into {} groups of one size", n, o.n_groups));
  if (o.top_groups < 1 || o.top_groups > o.n_groups) refuse(fmt::format("{} groups of experts for a token, but there are {}", o.top_groups, o.n_groups));
  if (o.n_groups > 1 && o.group_best > n / o.n_groups) refuse(fmt::format("groups of {} experts are too small to be scored by their best {}", n / o.n_groups, o.group_best));
  if (o.n_groups > 1 && o.top_k > n / o.n_groups * o.top_groups)
    refuse(fmt::format("{} experts for a token, but only {} are in the groups it may choose from", o.top_k, n / o.n_groups * o.top_groups));
}

// One matrix of every expert.
struct ExpertMatrices {
  Weights& weights;
  const std::string& prefix;
  const MoeOptions& o;

  std::vector<const Weight*> of(std::string_view name, std::string_view fused, Rows fused_rows, int64_t rows, int64_t cols) const {
    const std::string experts = prefix + std::string(o.experts), own_suffix = "." + std::string(name) + ".weight", fused_name = prefix + std::string(fused);
    const std::string stacked = experts + std::string(name) + ".weight";
    std::vector<const Weight*> all;
    if (weights.has(experts + "0" + own_suffix)) {
      for (int e = 0; e < o.n_experts; e++) all.push_back(weights.matrix("experts", fmt::format("{}{}{}", experts, e, own_suffix), rows, cols));
    } else if (weights.has(fused_name)) {
      const bool transposed = o.transposed && format(weights.stored(fused_name).format).block_elems == 1;      // blocks run along inputs, so they are never turned
      for (int e = 0; e < o.n_experts; e++) all.push_back(weights.expert("experts", fused_name, e, o.n_experts, fused_rows, cols, transposed));
    } else if (weights.has(stacked)) {
      for (int e = 0; e < o.n_experts; e++) all.push_back(weights.expert("experts", stacked, e, o.n_experts, {0, rows, rows}, cols, false));
    } else {
      fail("the experts of {} are neither single tensors ({}0{}) nor fused ones ({}, {})", prefix, experts, own_suffix, fused_name, stacked);
    }
    for (const Weight* w : all)
      if (w->arithmetic != all[0]->arithmetic)
        fail("the experts of {} are stored in formats that are multiplied differently ({} and {}); quantize all of them or none", prefix, format(all[0]->format).name,
             format(w->format).name);
    return all;
  }
  Tensor biases(std::string_view name, std::string_view fused, Rows rows) const {
    if (!o.bias) return {};
    std::vector<std::string> own;
    for (int e = 0; e < o.n_experts; e++) own.push_back(fmt::format("{}{}{}.{}.bias", prefix, o.experts, e, name));
    if (!weights.has(own[0])) return weights.expert_biases("experts", prefix + std::string(fused) + "_bias", o.n_experts, rows);
    const Tensor all = weights.vectors("experts", own, rows.n);
    return {all.data, FormatId::f32, o.n_experts, rows.n, rows.n * 4};
  }
};

}  // namespace

MoeOptions read_grouped_moe(const Config& config, bool renormalize_by_default) {
  const int d_ff = config.integer("moe_intermediate_size", 1, 1 << 24), n_shared = config.integer_or("n_shared_experts", 0, 0, 1 << 10);
  return {
      .n_experts = config.integer("n_routed_experts", 1, 1 << 16), .top_k = config.integer("num_experts_per_tok", 1, 1 << 16), .d_ff = d_ff,
      .act = read_activation(config, "hidden_act", "silu"), .gate = GateKind::sigmoid, .renormalize = config.flag_or("norm_topk_prob", renormalize_by_default),
      .n_groups = config.integer_or("n_group", 1, 1, 1 << 16), .top_groups = config.integer_or("topk_group", 1, 1, 1 << 16), .group_best = 2, .norm_eps = 1e-20f,
      .scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.0, 0.0, 1e6)),
      .choice_bias = "gate.e_score_correction_bias", .shared = n_shared > 0 ? "shared_experts." : "", .d_shared = n_shared * d_ff,
  };
}

std::unique_ptr<Module> Construction::moe(const std::string& prefix, const Shape& s, const MoeOptions& o, std::unique_ptr<Module> shared) {
  check(config, o);
  const int n_scores = o.n_experts + o.n_idle;
  const auto named = [&](std::string_view name, std::string_view suffix) { return prefix + std::string(name) + std::string(suffix); };
  Moe::Parts parts{
      .router = weights.matrix("router", named(o.router, ".weight"), n_scores, s.d_model),
      .router_bias = o.router_bias ? weights.vector("router", named(o.router, ".bias"), n_scores) : Tensor{},
      .route = {.bias = o.choice_bias.empty() ? Tensor{} : weights.vector("router", named(o.choice_bias, ""), n_scores),
                .hash = o.hash.empty() ? Tensor{} : weights.expert_of_token("router", named(o.hash, ""), s.n_vocab, o.top_k, o.n_experts),
                .n_experts = o.n_experts, .n_idle = o.n_idle, .top_k = o.top_k, .gate = o.gate, .gate_chosen = o.gate_chosen,
                .n_groups = o.n_groups, .top_groups = o.top_groups, .group_best = o.group_best,
                .renormalize = o.renormalize, .norm_eps = o.norm_eps, .norm_least = o.norm_least, .scale = o.scale},
      .act = o.act, .limit = o.limit, .weigh_inputs = o.weigh_inputs,
  };

  const int64_t n = o.d_ff;
  const Rows down{0, s.d_model, s.d_model}, all{0, n, n};
  const Rows gate = !o.gated ? all : o.interleaved ? Rows{0, n, 2 * n, 1, 2} : Rows{0, n, 2 * n};
  const Rows up = !o.gated ? all : o.interleaved ? Rows{1, n, 2 * n, 1, 2} : Rows{n, n, 2 * n};
  const ExpertMatrices experts{weights, prefix, o};
  if (o.gated) parts.gate = experts.of(o.names.gate, o.fused_gate_up, gate, n, s.d_model), parts.gate_bias = experts.biases(o.names.gate, o.fused_gate_up, gate);
  parts.up = experts.of(o.names.up, o.fused_gate_up, up, n, s.d_model);
  parts.up_bias = experts.biases(o.names.up, o.fused_gate_up, up);
  parts.down = experts.of(o.names.down, o.fused_down, down, s.d_model, n);
  parts.down_bias = experts.biases(o.names.down, o.fused_down, down);
  for (ComponentSize& c : model.sizes)
    if (c.component == "experts") c.active = static_cast<double>(o.top_k) / n_scores;

  parts.shared = std::move(shared);
  if (!parts.shared && !o.shared.empty()) {
    const auto matrix = [&](std::string_view name, int64_t rows, int64_t cols) { return weights.matrix("mlp", named(o.shared, name) + ".weight", rows, cols); };
    for (const int buffer : {0, 1}) scratch(buffer, o.d_shared);
    parts.shared = std::make_unique<Mlp>(Mlp::Parts{.gate = matrix(o.gated ? o.shared_names.gate : o.shared_names.up, o.d_shared, s.d_model),
                                                    .up = o.gated ? matrix(o.shared_names.up, o.d_shared, s.d_model) : nullptr,
                                                    .down = matrix(o.shared_names.down, s.d_model, o.d_shared), .act = o.act, .limit = o.limit});
  }
  if (!o.shared_gate.empty()) parts.shared_gate = weights.matrix("mlp", named(o.shared_gate, ".weight"), 1, s.d_model);

  scratch(Moe::kLogits, n_scores);
  scratch(Moe::kChosen, o.top_k);
  scratch(Moe::kWeights, o.top_k);
  scratch(Moe::kPlan, o.n_experts + 1 + 2 * o.top_k);
  scratch(Moe::kUp, n, o.top_k);
  if (o.gated) scratch(Moe::kGate, n, o.top_k);
  scratch(Moe::kResults, s.d_model, o.top_k);
  if (parts.shared) scratch(Moe::kShared, s.d_model);
  return std::make_unique<Moe>(std::move(parts));
}

}  // namespace ridge
