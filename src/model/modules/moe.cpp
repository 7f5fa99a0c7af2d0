#include "model/modules/moe.h"

namespace ridge {

void Moe::forward(Pass& pass, Tensor out, Tensor x) const {
  const int n_experts = p_.route.n_experts, top_k = p_.route.top_k;
  const int64_t n_pairs = int64_t{pass.n_tokens()} * top_k, d_ff = p_.up[0]->rows;
  const Tensor logits = pass.scratch(kLogits, p_.router->rows), chosen = pass.scratch(kChosen, top_k, 1, FormatId::i32), weights = pass.scratch(kWeights, top_k);
  Tensor plan = pass.scratch(kPlan, n_experts + 1 + 2 * top_k, 1, FormatId::i32);
  plan.rows = 1;                             // one row that takes the room of all: the tokens share the part that counts experts
  plan.cols = n_experts + 1 + 2 * n_pairs;

  pass.run(Matmul{.out = {logits}, .x = x, .w = {p_.router}, .bias = {p_.router_bias}});
  MoeRoute route = p_.route;
  route.chosen = chosen, route.weights = weights, route.plan = plan, route.logits = logits;
  pass.run(route);

  const bool gated = !p_.gate.empty();
  const Tensor up = pass.scratch(kUp, d_ff, top_k), gate = gated ? pass.scratch(kGate, d_ff, top_k) : up, results = pass.scratch(kResults, out.cols, top_k);
  pass.run(MoeMatmul{.out = {up, gated ? gate : Tensor{}}, .x = x, .plan = plan, .w = {p_.up.data(), gated ? p_.gate.data() : nullptr}, .bias = {p_.up_bias, p_.gate_bias},
                     .n_experts = n_experts, .top_k = top_k, .gather = true, .weights = p_.weigh_inputs ? weights : Tensor{}});
  pass.run(Activate{.out = gate, .gate = gate, .up = gated ? up : Tensor{}, .kind = p_.act, .limit = p_.limit});
  pass.run(MoeMatmul{.out = {results}, .x = gate, .plan = plan, .w = {p_.down.data()}, .bias = {p_.down_bias}, .n_experts = n_experts, .top_k = top_k, .gather = false});
  pass.run(MoeCombine{.out = out, .y = results, .plan = plan, .chosen = chosen, .weights = p_.weigh_inputs ? Tensor{} : weights, .x = x, .n_experts = n_experts, .top_k = top_k});

  if (!p_.shared) return;
  const Tensor shared = pass.scratch(kShared, out.cols);
  p_.shared->forward(pass, shared, x);
  if (p_.shared_gate) {
    const Tensor factor = pass.scratch(kLogits, 1);
    pass.run(Matmul{.out = {factor}, .x = x, .w = {p_.shared_gate}});
    pass.run(Activate{.out = shared, .gate = factor, .up = shared, .kind = ActKind::sigmoid});
  }
  pass.run(AddScaled{.x = out, .y = shared});
}

}  // namespace ridge
