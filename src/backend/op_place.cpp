#include "backend/op_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace ridge {
namespace {

std::vector<std::string> weights_of(const Op& op) {
  std::vector<std::string> names;
  const auto add = [&](const Weight* w) {
    if (w && !w->name.empty()) names.push_back(w->name);
  };
  if (const auto* e = std::get_if<Embed>(&op)) add(e->table);
  if (const auto* m = std::get_if<Matmul>(&op)) std::ranges::for_each(m->w, add);
  return names;
}

// The first part of a tensor's name that is a number; empty: it belongs to no layer.
std::string layer_of(const std::string& tensor) {
  for (size_t from = 0; from < tensor.size();) {
    const size_t to = std::min(tensor.find('.', from), tensor.size());
    const std::string part = tensor.substr(from, to - from);
    if (!part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) return part;
    from = to + 1;
  }
  return "";
}

std::string in_brackets(const std::string& layer, const std::string& other) {
  if (layer.empty() && other.empty()) return "";
  if (layer.empty() || other.empty() || layer == other) return fmt::format(" (layer {})", layer.empty() ? other : layer);
  return fmt::format(" (layer {} or {})", layer, other);
}

}  // namespace

std::string place_of(std::span<const Op> ops, size_t first, size_t n) {
  CHECK(n > 0 && n <= ops.size() && first <= ops.size() - n);
  std::vector<std::string> parts;
  std::string layer;
  bool named = false;
  for (const Op& op : ops.subspan(first, n)) {
    const std::vector<std::string> weights = weights_of(op);
    parts.push_back(weights.empty() ? std::string(name_of(op)) : fmt::format("{} \"{}\"", name_of(op), fmt::join(weights, "\", \"")));
    if (!weights.empty()) named = true, layer = layer_of(weights[0]);
  }
  const std::string what = fmt::format("{}", fmt::join(parts, " + "));
  if (named) return what + in_brackets(layer, layer);
  std::string before, after;
  for (size_t i = first; i > 0 && before.empty(); --i)
    if (const auto weights = weights_of(ops[i - 1]); !weights.empty()) before = weights.back();
  for (size_t i = first + n; i < ops.size() && after.empty(); ++i)
    if (const auto weights = weights_of(ops[i]); !weights.empty()) after = weights.front();
  const std::string where = !before.empty() && !after.empty() ? fmt::format(" between \"{}\" and \"{}\"", before, after)
                            : !before.empty()                 ? fmt::format(" after \"{}\"", before)
                            : !after.empty()                  ? fmt::format(" before \"{}\"", after)
                                                              : "";
  return what + where + in_brackets(layer_of(before), layer_of(after));
}

}  // namespace ridge
