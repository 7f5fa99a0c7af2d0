#include "files/tensor_table.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;

size_t alignment_of(FormatId id) {
  const Format& f = format(id);
  if (f.block_elems == 1) return static_cast<size_t>(f.block_bytes);
  return f.block_bytes % 2 == 0 ? 2 : 1;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::optional<uint64_t> tensor_bytes(int block_elems, int block_bytes, const std::vector<int64_t>& shape) {
  uint64_t n = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(n, static_cast<uint64_t>(dim), &n) || n > kMaxBytes) return std::nullopt;
  }
  const auto elems = static_cast<uint64_t>(block_elems);
  if (elems > 1 && (shape.empty() || static_cast<uint64_t>(shape.back()) % elems != 0)) return std::nullopt;
  uint64_t bytes;
  if (__builtin_mul_overflow(n / elems, static_cast<uint64_t>(block_bytes), &bytes) || bytes > kMaxBytes) return std::nullopt;
  return bytes;
}

void TensorTable::add(TensorInfo info, const std::byte* data) {
  const auto [it, is_new] = index_.try_emplace(info.name, infos_.size());
  if (!is_new) fail("{}: tensor '{}' appears twice (also in {}); the checkpoint is damaged or mixes two versions", info.file, info.name, infos_[it->second].file);
  infos_.push_back(std::move(info));
  data_.push_back(data);
}

const TensorInfo* TensorTable::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &infos_[it->second];
}

StoredWeight TensorTable::get(const TensorInfo& info) const {
  if (!format(info.format).readable)
    fail("{}: tensor '{}' has a type this version cannot read; `ridge inspect --tensors` lists the types, other files of the same model may use another", info.file, info.name);
  if (info.bytes == 0) return {.name = info.name, .format = info.format, .codes = {.format = info.format}};        // whatever its other dimensions claim
  int64_t cols = info.shape.empty() ? 1 : info.shape.back(), rows = 1;
  for (size_t i = 0; i + 1 < info.shape.size(); ++i) rows *= info.shape[i];
  const std::byte* data = data_[static_cast<size_t>(&info - infos_.data())];
  if (reinterpret_cast<uintptr_t>(data) % alignment_of(info.format) != 0)
    data = copy_of(info.name, info.bytes, [&](std::byte* out) { std::memcpy(out, data, info.bytes); });
  return {.name = info.name, .format = info.format, .rows = rows, .cols = cols, .codes = view(const_cast<std::byte*>(data), info.format, rows, cols)};
}

StoredWeight TensorTable::made(const std::string& name, FormatId id, int64_t rows, int64_t cols, const std::function<void(std::byte*)>& fill) const {
  std::byte* data = copy_of(name + " (made)", static_cast<uint64_t>(rows * row_bytes(id, cols)), fill);
  return {.name = name, .format = id, .rows = rows, .cols = cols, .codes = view(data, id, rows, cols)};
}

float TensorTable::scalar(const TensorInfo& info) const {
  const StoredWeight w = get(info);
  if (w.rows * w.cols != 1) fail("{}: tensor '{}' has {} numbers, expected one", info.file, info.name, w.rows * w.cols);
  float value;
  decode_stored_row(&value, w, 0);
  return value;
}

void TensorTable::fail_missing(std::string_view name, std::string_view file) const {
  std::vector<std::pair<size_t, std::string_view>> nearest;
  for (const TensorInfo& info : infos_) nearest.emplace_back(name.size() < 512 && info.name.size() < 512 ? edit_distance(name, info.name) : 1024, info.name);
  const size_t n = std::min<size_t>(3, nearest.size());
  std::partial_sort(nearest.begin(), nearest.begin() + static_cast<std::ptrdiff_t>(n), nearest.end());
  std::string names;
  for (size_t i = 0; i < n; ++i) names += (i ? ", " : "") + std::string(nearest[i].second);
  fail("{}: there is no tensor '{}'; the nearest of its {} names: {}", file, name, infos_.size(), names.empty() ? "(none)" : names);
}

std::byte* TensorTable::copy_of(const std::string& name, uint64_t n_bytes, const std::function<void(std::byte*)>& fill) const {
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = copies_.try_emplace(name);
  if (is_new) {
    it->second.resize(n_bytes / 8 + 1);
    fill(reinterpret_cast<std::byte*>(it->second.data()));
  }
  return reinterpret_cast<std::byte*>(it->second.data());
}

}  // namespace ridge
