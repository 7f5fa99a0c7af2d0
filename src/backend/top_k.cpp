#include "backend/top_k.h"

#include <algorithm>
#include <cmath>

namespace ridge {

void select_top_k(std::span<Scored> scored, int k) {
  const auto better = [](const Scored& a, const Scored& b) { return (std::isnan(a.score) && !std::isnan(b.score)) || a.score > b.score; };
  const auto n = static_cast<int64_t>(scored.size());
  if (k <= 0 || k >= n) return;
  if (int64_t{k} * 64 <= n) std::partial_sort(scored.begin(), scored.begin() + k, scored.end(), better);
  else std::nth_element(scored.begin(), scored.begin() + (k - 1), scored.end(), better);
}

}  // namespace ridge
