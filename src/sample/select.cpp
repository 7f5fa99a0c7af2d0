// Searches over a row of logits. Both look at chunks of 1024: the inner loop is a branch-free maximum over sixteen lanes that the compiler turns into vector
// instructions, and only a chunk that holds something new is looked at number by number.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sample/sampler.h"

namespace ridge {
namespace {

constexpr int kLanes = 16, kChunk = 1024;

// The largest of n numbers, NaN when there is one among them.
float largest_of(const float* x, int64_t n) {
  float best[kLanes];
  float poison[kLanes];                      // x - x is 0, or NaN for NaN and the infinities
  for (int i = 0; i < kLanes; ++i) best[i] = -INFINITY, poison[i] = 0;
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes)
    for (int i = 0; i < kLanes; ++i) {
      best[i] = x[k + i] > best[i] ? x[k + i] : best[i];
      poison[i] += x[k + i] - x[k + i];
    }
  float result = -INFINITY, bad = 0;
  for (int i = 0; i < kLanes; ++i) {
    result = std::max(result, best[i]);
    bad += poison[i];
  }
  for (; k < n; ++k) {
    result = x[k] > result ? x[k] : result;
    bad += x[k] - x[k];
  }
  if (bad != 0 || std::isnan(bad))           // rare (-inf masks a token): look closely
    for (k = 0; k < n; ++k)
      if (std::isnan(x[k])) return x[k];
  return result;
}

bool before(const TokenLogprob& a, const TokenLogprob& b) { return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token); }

}  // namespace

Largest find_largest(std::span<const float> logits) {
  float best = -INFINITY;
  size_t best_chunk = 0;
  for (size_t first = 0; first < logits.size(); first += kChunk) {
    const float here = largest_of(logits.data() + first, std::min<size_t>(kChunk, logits.size() - first));
    if (std::isnan(here)) return {-1, here};
    if (here > best) best = here, best_chunk = first;
  }
  for (size_t i = best_chunk; i < logits.size(); ++i)
    if (logits[i] == best) return {int32_t(i), best};
  return {0, best};
}

void select_top_k(std::vector<TokenLogprob>& out, std::span<const float> logits, int k) {
  CHECK_GT(k, 0);
  out.clear();
  const size_t keep = size_t(k), most = keep + std::max<size_t>(keep, kChunk);
  out.reserve(most);
  float threshold = -INFINITY;               // of the k-th best once k are known; an equal logit further on has a higher id and loses
  bool full = false;
  const auto shrink = [&] {
    if (out.size() <= keep) return;
    std::nth_element(out.begin(), out.begin() + (keep - 1), out.end(), before);
    out.resize(keep);
    threshold = out.back().logprob;
    full = true;
  };
  for (size_t first = 0; first < logits.size(); first += kChunk) {
    const size_t last = std::min(first + kChunk, logits.size());
    if (full && !(largest_of(logits.data() + first, last - first) > threshold)) continue;
    for (size_t i = first; i < last; ++i) {
      if (full && !(logits[i] > threshold)) continue;
      out.push_back({int32_t(i), logits[i]});
      if (out.size() == most) shrink();
    }
  }
  shrink();
  std::sort(out.begin(), out.end(), before);
}

}  // namespace ridge
