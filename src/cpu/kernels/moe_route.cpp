// Mixtures of experts, the parts around the products: which experts a token goes to, the plan that groups rows by expert, and the sum of what they returned.
// Tokens are shared between the workers; the plan is a counting sort of all pairs, done by one of them.
#include <math.h>

#include "backend/step.h"
#include "cpu/kernels/kernels.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

void gate_scores(float* scores, const float* logits, int n, GateKind kind) {
  if (kind == GateKind::softmax) {
    float largest = logits[0], sum = 0;
    for (int i = 1; i < n; ++i) largest = logits[i] > largest ? logits[i] : largest;
    for (int i = 0; i < n; ++i) sum += scores[i] = ::expf(logits[i] - largest);
    for (int i = 0; i < n; ++i) scores[i] /= sum;
    return;
  }
  for (int i = 0; i < n; ++i)
    scores[i] = kind == GateKind::sigmoid ? 1.0f / (1.0f + ::expf(-logits[i])) : ::sqrtf(logits[i] > 20 ? logits[i] : ::log1pf(::expf(logits[i])));
}

// The places of the k largest numbers, largest first; the lower place wins a tie. A NaN loses to every number. `x` is spoilt: what is taken becomes -inf.
void take_best(int32_t* best, float* x, int n, int k) {
  for (int j = 0; j < k; ++j) {
    int at = -1;
    for (int i = 0; i < n; ++i) {
      bool taken = false;
      if (at < 0 || x[i] > x[at] || (x[at] != x[at] && x[i] == x[i])) {
        for (int l = 0; l < j && !taken; ++l) taken = best[l] == i;
        if (!taken) at = i;
      }
    }
    best[j] = at;
    x[at] = -__builtin_inff();
  }
}

// Experts outside the best groups get -inf. scratch: [n_groups * 2] numbers.
void keep_best_groups(float* choice, int n, float* scratch, const MoeRoute& op) {
  const int size = n / op.n_groups;
  float* const scores = scratch;
  auto* const order = reinterpret_cast<int32_t*>(scratch + op.n_groups);
  for (int g = 0; g < op.n_groups; ++g) {
    const float* members = choice + g * size;
    float first = -__builtin_inff(), second = first;
    for (int i = 0; i < size; ++i) {
      if (members[i] > first) second = first, first = members[i];
      else if (members[i] > second) second = members[i];
    }
    scores[g] = op.group_best > 1 ? first + second : first;
  }
  take_best(order, scores, op.n_groups, op.n_groups);
  for (int i = op.top_groups; i < op.n_groups; ++i)
    for (int e = 0; e < size; ++e) choice[order[i] * size + e] = -__builtin_inff();
}

// scratch: 4 * (n_experts + n_idle) numbers.
void route_token(int32_t* chosen, float* weights, const float* logits, int32_t token, const MoeRoute& op, float* scratch) {
  const int n = op.n_experts + op.n_idle, k = op.top_k;
  float *scores = scratch, *choice = scratch + n;
  gate_scores(scores, logits, n, op.gate);
  if (op.hash) {
    for (int j = 0; j < k; ++j) chosen[j] = op.hash.row_as<const int32_t>(token)[j];
  } else {
    for (int i = 0; i < n; ++i) choice[i] = (op.gate_chosen ? logits : scores)[i] + (op.bias ? op.bias.f32()[i] : 0.0f);
    if (op.n_groups > 1) keep_best_groups(choice, n, scratch + 2 * n, op);
    take_best(chosen, choice, n, k);
  }
  if (op.gate_chosen) {
    float* const picked = choice;
    for (int j = 0; j < k; ++j) picked[j] = logits[chosen[j]];
    gate_scores(weights, picked, k, op.gate);
  } else {
    for (int j = 0; j < k; ++j) weights[j] = scores[chosen[j]];
  }
  float sum = 0;
  for (int j = 0; j < k; ++j) sum += weights[j];
  sum += op.norm_eps;
  if (sum < op.norm_least) sum = op.norm_least;
  for (int j = 0; j < k; ++j) weights[j] = (op.renormalize ? weights[j] / sum : weights[j]) * op.scale;
}

void group_by_expert(int32_t* plan, const Tensor& chosen, int n_experts) {
  const int64_t k = chosen.cols, n_pairs = chosen.rows * k;
  int32_t *pair_of_row = plan + n_experts + 1, *row_of_pair = pair_of_row + n_pairs;
  for (int e = 0; e <= n_experts; ++e) plan[e] = 0;
  const auto for_pairs = [&](auto&& fn) {
    for (int64_t t = 0; t < chosen.rows; ++t)
      for (int64_t j = 0; j < k; ++j) fn(t * k + j, chosen.row_as<const int32_t>(t)[j]);
  };
  for_pairs([&](int64_t, int32_t e) { if (e < n_experts) ++plan[e]; });
  int32_t first = 0;
  for (int e = 0; e <= n_experts; ++e) {
    const int32_t n = plan[e];
    plan[e] = first;
    first += n;
  }
  // plan[e] walks through the rows of e, and ends at the first row of e + 1.
  for_pairs([&](int64_t pair, int32_t e) {
    row_of_pair[pair] = -1;
    if (e >= n_experts) return;
    pair_of_row[plan[e]] = static_cast<int32_t>(pair);
    row_of_pair[pair] = plan[e]++;
  });
  for (int e = n_experts; e > 0; --e) plan[e] = plan[e - 1];
  plan[0] = 0;
}

}  // namespace

void moe_route(const MoeRoute& op, Lane& lane) {
  auto* const scratch = reinterpret_cast<float*>(lane.own.data());
  if (static_cast<int64_t>(lane.own.size()) < 16ll * (op.n_experts + op.n_idle)) __builtin_trap();
  const auto [first, last] = lane.part(op.logits.rows);
  for (int64_t t = first; t < last; ++t)
    route_token(op.chosen.row_as<int32_t>(t), op.weights.f32(t), op.logits.f32(t), op.hash ? lane.step->tokens().data()[t] : 0, op, scratch);
  lane.barrier();
  if (lane.worker == 0) group_by_expert(op.plan.row_as<int32_t>(0), op.chosen, op.n_experts);
}

void moe_combine(const MoeCombine& op, Lane& lane) {
  const int32_t* row_of_pair = op.plan.row_as<const int32_t>(0) + op.n_experts + 1 + op.out.rows * op.top_k;
  for_pieces(lane, op.out.rows, op.out.cols, [&](int64_t t, int64_t first, int64_t last) {
    const int32_t* rows = row_of_pair + t * op.top_k;
    float* const out = op.out.f32(t);
    for_lanes(first, last, [&](int64_t i, int n) {
      F sum = zero();
      for (int j = 0; j < op.top_k; ++j) {
        const float* y = rows[j] >= 0 ? op.y.f32(rows[j]) : op.x.f32(t);
        sum = op.weights ? fma(set1(op.weights.f32(t)[j]), load_n(y + i, n), sum) : add(sum, load_n(y + i, n));
      }
      store_n(out + i, sum, n);
    });
  });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
