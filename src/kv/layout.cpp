#include "kv/layout.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace ridge {
namespace {

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t bytes_of(const std::vector<KvGroupLayout>& groups, const KvDemand& demand, int64_t n_pages) {
  int64_t sum = 0;
  for (const KvGroupLayout& group : groups) sum += group.page_bytes * std::min(n_pages, most_pages(group, demand));
  return sum;
}

}  // namespace

std::vector<KvGroupLayout> group_specs(const std::vector<KvSpec>& specs, int page_size) {
  CHECK(page_size >= 16 && 64 % page_size == 0);
  std::vector<KvGroupLayout> groups;
  for (size_t handle = 0; handle < specs.size(); ++handle) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const KvGroupLayout& g) { return g.spec == specs[handle]; });
    if (group == groups.end()) group = groups.insert(groups.end(), KvGroupLayout{.spec = specs[handle]});
    std::array<int64_t, kMaxKvPlanes> offsets{};
    for (int i = 0; i < kMaxKvPlanes; ++i) {
      const KvPlane& plane = group->spec.planes[i];
      offsets[i] = group->page_bytes;
      group->page_bytes += div_up(div_up(page_size, plane.every) * entry_bytes(plane), 64) * 64;
    }
    group->handles.push_back(int(handle));
    group->offsets.push_back(offsets);
  }
  return groups;
}

int64_t most_pages(const KvGroupLayout& group, const KvDemand& demand) {
  const int64_t whole = demand.n_seqs * div_up(demand.max_context, demand.page_size);
  // Of a recurrent group a sequence keeps one page, and takes those its step writes.
  if (group.spec.kind == KvKind::recurrent) return std::min(whole, 2 * demand.n_seqs + demand.n_kept_ends + div_up(demand.max_step_tokens, demand.page_size));
  if (group.spec.window == 0) return whole;
  // A sequence keeps the pages its next token sees (a window may begin inside a page), its sinks, and takes those its step writes: the steps' tokens add up
  // to max_step_tokens, but each sequence may begin one more page than they fill.
  const int64_t kept = div_up(group.spec.window, demand.page_size) + 1 + div_up(group.spec.sinks, demand.page_size);
  return std::min(whole, demand.n_seqs * (kept + 1) + demand.n_kept_ends * kept + div_up(demand.max_step_tokens, demand.page_size));
}

int64_t kv_bytes_for(const std::vector<KvSpec>& specs, const KvDemand& demand, int64_t n_tokens) {
  return bytes_of(group_specs(specs, demand.page_size), demand, div_up(n_tokens, demand.page_size));
}

std::vector<int> divide_pages(const std::vector<KvGroupLayout>& groups, const KvDemand& demand, int64_t max_bytes) {
  int64_t low = 0, high = 0;                 // bytes_of(low) fits; the answer is in [low, high]
  for (const KvGroupLayout& group : groups) high = std::max(high, most_pages(group, demand));
  high = std::min<int64_t>(high, std::numeric_limits<int32_t>::max());
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (bytes_of(groups, demand, middle) <= max_bytes) low = middle;
    else high = middle - 1;
  }
  std::vector<int> n_pages;
  for (const KvGroupLayout& group : groups) n_pages.push_back(int(std::min(low, most_pages(group, demand))));
  return n_pages;
}

}  // namespace ridge
