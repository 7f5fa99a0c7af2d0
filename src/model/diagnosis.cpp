#include "model/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ridge {
namespace {

bool is_finite(Backend& backend, const Tensor& x) {
  if (!x) return true;
  std::vector<float> values(static_cast<size_t>(x.rows * x.cols));
  backend.download(values.data(), x);
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// The layer a tensor's name has as its first number; -1: none.
int layer_of(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    int layer = -1;
    const auto [rest, error] = std::from_chars(name.data() + begin, name.data() + end, layer);
    if (error == std::errc{} && rest == name.data() + end) return layer;
    begin = end + 1;
  }
  return -1;
}

// Which tensor of a layer (-1: of none) holds what is not a number; empty: all is well.
std::string damaged_tensor(const WeightFile& file, int layer) {
  std::vector<float> row;
  for (const TensorInfo& info : file.tensors()) {
    if (layer_of(info.name) != layer || info.format == FormatId::u8) continue;         // planes of nibbles belong to a tensor that is looked at
    const StoredWeight w = file.get(info.name);
    if (!format(w.format).readable) continue;
    row.resize(static_cast<size_t>(w.cols));
    for (int64_t r = 0; r < w.rows; r++) {
      decode_stored_row(row.data(), w, r);
      if (std::any_of(row.begin(), row.end(), [](float v) { return std::isnan(v); })) return fmt::format("tensor {} holds NaN in row {}", info.name, r);
    }
  }
  return {};
}

}  // namespace

std::string diagnose_step(const Model& model, const WeightFile& file, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv) {
  const auto is_bad_after = [&](size_t n_blocks) {
    const Stream stream = forward_blocks(model, backend, step, workspace, kv, n_blocks);
    return !is_finite(backend, stream.x) || !is_finite(backend, stream.pending);
  };
  const size_t n_blocks = model.blocks.size();
  size_t low = 0, high = n_blocks + 1;                 // bad after `high` blocks, n_blocks + 1 being the head; not known to be before `low`
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (is_bad_after(middle)) high = middle;
    else low = middle + 1;
  }
  const auto layer = static_cast<int>(low) - 1 - std::max(0, static_cast<int>(n_blocks) - model.n_layers);
  const std::string where = low == 0 ? "the embedding" : low > n_blocks ? "the head" : layer < 0 ? "what comes before the first layer" : fmt::format("layer {}", layer);
  const std::string damage = damaged_tensor(file, low > 0 && low <= n_blocks ? std::max(layer, -1) : -1);
  return fmt::format("the first numbers that are not finite come from {}; {}", where, damage.empty() ? "its weights are numbers, so one overflowed on the way" : damage);
}

}  // namespace ridge
