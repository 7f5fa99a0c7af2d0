// Which of a row's largest logits a Draw means (step.h), by the running sums of their weights. Devices sum in orders of their own, and the host's sampler in its own again, so a draw is
// decided only where no such sum could decide it otherwise: the token is then the sampler's, whoever found it. What is left open is for whoever sees the whole row.
#pragma once
#include "backend/step.h"

namespace ridge {

// The share of a row's weight by which two sums of it may differ; rounding stays under a hundredth of it for rows of a million tokens. A token of a flat row of 152,000 is left open 3 times in 10,000.
inline constexpr double kDrawSlack = 1e-9;

// Whether min_p keeps a weight, the largest being 1: -1 where rounding decides. `distance`: how far its logit is under the largest, 0 or less; the largest weighs 1 without rounding.
constexpr int is_kept(double weight, double distance, float min_p) {
  if (distance == 0.0 || weight >= double(min_p) * (1 + kDrawSlack)) return 1;
  return weight <= double(min_p) * (1 - kDrawSlack) && min_p > 0.0f ? 0 : -1;
}

struct SortedWeights {
  const double* up_to;                       // [n_listed]: the weight of all up to one, likeliest first
  int n_listed;
  int n_kept;                                // of them, by min_p
  bool is_all;                               // nothing that may be drawn is missing
  double total;                              // what top_p is a share of: the weight of all that may be drawn, listed or not
};

// The first of them that reaches a mass, or n_listed.
constexpr int first_reaching(const SortedWeights& w, double mass) {
  int low = 0, high = w.n_listed;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (w.up_to[middle] >= mass) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The mass that is left after top_p, which reaches `wanted` with its last one, and min_p. `beyond` where it is reached by what is not listed.
constexpr double mass_left(const SortedWeights& w, double wanted, double beyond) {
  const int last = first_reaching(w, wanted);
  if (last == w.n_listed && !w.is_all && w.n_kept == w.n_listed) return beyond;
  return w.up_to[last < w.n_kept ? last : w.n_kept - 1];
}

// The place of the one that is drawn, or -1: left open.
constexpr int place_drawn(const SortedWeights& w, const Draw& draw) {
  if (!(w.total > 0.0 && w.total < 1e300) || w.n_listed == 0) return -1;
  const double slack = kDrawSlack * w.total, last = w.up_to[w.n_listed - 1];
  double least = w.up_to[w.n_kept - 1], most = least;
  if (draw.top_p < 1.0f) {
    const double wanted = double(draw.top_p) * w.total, lightest = w.n_listed > 1 ? last - w.up_to[w.n_listed - 2] : last;
    least = mass_left(w, wanted - slack, draw.min_p > 0.0f ? last : wanted - slack);
    most = mass_left(w, wanted + slack, wanted + slack + lightest);
  } else if (!w.is_all && w.n_kept == w.n_listed) {
    return -1;
  }
  const int from = first_reaching(w, draw.u * least - slack), to = first_reaching(w, draw.u * most + slack);
  return from == to && from < w.n_listed ? from : -1;
}

}  // namespace ridge
