// The ops of mixtures of experts: choose experts, multiply the rows grouped by expert, add up. Formulas and the plan's layout are those of op.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "ref/ref_ops.h"

namespace ridge::ref {
namespace {

void gate_scores(std::vector<float>& scores, const float* logits, GateKind kind) {
  const size_t n = scores.size();
  if (kind == GateKind::softmax) {
    const float largest = *std::max_element(logits, logits + n);
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += scores[i] = std::exp(logits[i] - largest);
    for (float& s : scores) s /= sum;
    return;
  }
  for (size_t i = 0; i < n; i++)
    scores[i] = kind == GateKind::sigmoid ? 1.0f / (1.0f + std::exp(-logits[i])) : std::sqrt(logits[i] > 20 ? logits[i] : std::log1p(std::exp(logits[i])));
}

// Experts outside the best groups can not be chosen.
void keep_best_groups(std::vector<float>& choice, const MoeRoute& op) {
  const size_t size = choice.size() / static_cast<size_t>(op.n_groups);
  std::vector<float> group_scores;
  for (int g = 0; g < op.n_groups; g++) {
    std::vector<float> members(choice.begin() + static_cast<int64_t>(size) * g, choice.begin() + static_cast<int64_t>(size) * (g + 1));
    std::partial_sort(members.begin(), members.begin() + op.group_best, members.end(), std::greater<>());
    group_scores.push_back(std::accumulate(members.begin(), members.begin() + op.group_best, 0.0f));
  }
  std::vector<int> order(static_cast<size_t>(op.n_groups));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return group_scores[static_cast<size_t>(a)] > group_scores[static_cast<size_t>(b)]; });
  for (size_t i = static_cast<size_t>(op.top_groups); i < order.size(); i++)
    std::fill_n(choice.begin() + static_cast<int64_t>(size) * order[i], size, -std::numeric_limits<float>::infinity());
}

void choose(int32_t* chosen, const std::vector<float>& scores, int32_t token, const MoeRoute& op) {
  if (op.hash) {
    std::copy_n(op.hash.row_as<const int32_t>(token), op.top_k, chosen);
    return;
  }
  std::vector<float> choice = scores;
  if (op.bias)
    for (size_t i = 0; i < choice.size(); i++) choice[i] += op.bias.f32()[i];
  if (op.n_groups > 1) keep_best_groups(choice, op);
  std::vector<int32_t> order(choice.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return choice[static_cast<size_t>(a)] > choice[static_cast<size_t>(b)]; });
  std::copy_n(order.begin(), op.top_k, chosen);
}

void weigh(float* weights, const int32_t* chosen, const std::vector<float>& scores, const float* logits, const MoeRoute& op) {
  const auto k = static_cast<size_t>(op.top_k);
  std::vector<float> picked(k);
  for (size_t j = 0; j < k; j++) picked[j] = op.gate_chosen ? logits[chosen[j]] : scores[static_cast<size_t>(chosen[j])];
  if (op.gate_chosen) gate_scores(picked, std::vector<float>(picked).data(), op.gate);
  const float sum = std::accumulate(picked.begin(), picked.end(), 0.0f);
  for (size_t j = 0; j < k; j++) weights[j] = (op.renormalize ? picked[j] / std::max(sum + op.norm_eps, op.norm_least) : picked[j]) * op.scale;
}

void group_by_expert(int32_t* plan, const Tensor& chosen, int n_experts) {
  const int64_t top_k = chosen.cols, n_pairs = chosen.rows * top_k;
  int32_t* const pair_of_row = plan + n_experts + 1;
  int32_t* const row_of_pair = pair_of_row + n_pairs;
  std::fill_n(row_of_pair, n_pairs, -1);
  int32_t row = 0;
  for (int e = 0; e < n_experts; e++) {
    plan[e] = row;
    for (int64_t pair = 0; pair < n_pairs; pair++)
      if (chosen.row_as<const int32_t>(pair / top_k)[pair % top_k] == e) {
        pair_of_row[row] = static_cast<int32_t>(pair);
        row_of_pair[pair] = row++;
      }
  }
  plan[n_experts] = row;
}

}  // namespace

void run(const MoeRoute& op, const Step& step) {
  std::vector<float> scores(static_cast<size_t>(op.n_experts + op.n_idle));
  for (int64_t t = 0; t < op.logits.rows; t++) {
    const float* logits = op.logits.f32(t);
    auto* chosen = op.chosen.row_as<int32_t>(t);
    gate_scores(scores, logits, op.gate);
    choose(chosen, op.gate_chosen ? std::vector<float>(logits, logits + scores.size()) : scores, step.tokens()[static_cast<size_t>(t)], op);
    weigh(op.weights.f32(t), chosen, scores, logits, op);
  }
  group_by_expert(op.plan.row_as<int32_t>(0), op.chosen, op.n_experts);
}

void run(const MoeMatmul& op, const Step& step) {
  const auto* first_rows = op.plan.row_as<const int32_t>(0);
  const int32_t* pair_of_row = first_rows + op.n_experts + 1;
  std::vector<float> input(static_cast<size_t>(op.x.cols));
  for (int e = 0; e < op.n_experts; e++)
    for (int64_t r = first_rows[e]; r < first_rows[e + 1]; r++) {
      const int32_t pair = pair_of_row[r];
      std::copy_n(op.x.f32(op.gather ? pair / op.top_k : r), op.x.cols, input.data());
      if (op.weights)
        for (float& v : input) v *= op.weights.f32(pair / op.top_k)[pair % op.top_k];
      for (size_t i = 0; i < op.w.size(); i++) {
        if (!op.w[i]) continue;
        const Tensor bias = op.bias[i] ? op.bias[i].slice_rows(e, 1) : Tensor{};
        run(Matmul{.out = {op.out[i].slice_rows(r, 1)}, .x = view(input.data(), FormatId::f32, 1, op.x.cols), .w = {op.w[i][e]}, .bias = {bias}}, step);
      }
    }
}

void run(const MoeCombine& op, const Step&) {
  const int32_t* row_of_pair = op.plan.row_as<const int32_t>(0) + op.n_experts + 1 + op.out.rows * op.top_k;
  for (int64_t t = 0; t < op.out.rows; t++)
    for (int64_t i = 0; i < op.out.cols; i++) {
      float sum = 0;
      for (int j = 0; j < op.top_k; j++) {
        const int32_t row = row_of_pair[t * op.top_k + j];
        sum += (op.weights ? op.weights.f32(t)[j] : 1.0f) * (row >= 0 ? op.y.f32(row)[i] : op.x.f32(t)[i]);
      }
      op.out.f32(t)[i] = sum;
    }
}

}  // namespace ridge::ref
