#include "files/gguf_weights.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "files/gguf/layout.h"
#include "files/hf_config.h"
#include "files/tensor_table.h"

namespace ridge {
namespace {

constexpr int64_t kMaxStack = 65536;

int64_t numbers_in(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

// A tensor by Hugging Face's name: one or more of the file's.
struct Part {
  std::string stored;                        // the file's name
  const GgufName* line = nullptr;            // null: as it is
  int64_t index = -1;                        // along a stack
};
struct Recipe {
  size_t info;
  std::vector<Part> parts;
};

class GgufWeights final : public WeightFile {
 public:
  GgufWeights(std::vector<std::shared_ptr<const GgufFile>> files, const GgufArchitecture& a, Json config) : files_(std::move(files)), config_(std::move(config)) {
    for (const auto& file : files_)
      for (const GgufTensor& t : file->tensors()) stored_.add({.name = t.name, .stored_name = t.name, .format = t.format, .shape = t.shape, .bytes = t.bytes, .file = file->path()}, t.data);
    for (const TensorInfo& info : stored_.tensors()) add(a, info);
  }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  bool has(std::string_view name) const override { return recipes_.find(std::string(name)) != recipes_.end(); }
  std::string container() const override {
    return files_.size() == 1 ? fmt::format("GGUF v{}", files_[0]->version()) : fmt::format("GGUF v{}, {} files", files_[0]->version(), files_.size());
  }

  StoredWeight get(std::string_view name) const override {
    const auto it = recipes_.find(std::string(name));
    if (it == recipes_.end()) fail_missing(name);
    const Recipe& recipe = it->second;
    const Part& part = recipe.parts[0];
    const bool is_view = recipe.parts.size() == 1 && !(part.line && (part.line->change != Change::none || part.line->numbers != Numbers::same));
    StoredWeight w = is_view ? element(part) : assembled(infos_[recipe.info], recipe.parts);
    w.name = name;
    return w;
  }

 private:
  void add(const GgufArchitecture& a, const TensorInfo& stored) {
    const auto match = match_gguf_name(a, stored.name);
    const std::string hf = match ? match->name : stored.name;
    const size_t hole = hf.find("{}");
    const bool is_companion = stored.name.ends_with(".scale") || stored.name.ends_with(".input_scale");         // numbers beside a weight: read with it
    if (hole == std::string::npos) {
      add_part(hf, stored, {stored.name, match && !is_companion ? match->line : nullptr}, stored.shape, stored.bytes);
      return;
    }
    if (is_companion) return;
    if (stored.shape.size() < 2 || stored.shape[0] <= 0 || stored.shape[0] > kMaxStack) fail("{}: tensor '{}' should be a stack, but has the shape [{}]", stored.file, stored.name, fmt::join(stored.shape, ", "));
    const std::vector<int64_t> shape(stored.shape.begin() + 1, stored.shape.end());
    for (int64_t i = 0; i < stored.shape[0]; ++i)
      add_part(std::string(hf).replace(hole, 2, std::to_string(i)), stored, {stored.name, match->line, i}, shape, stored.bytes / static_cast<uint64_t>(stored.shape[0]));
  }

  void add_part(const std::string& hf, const TensorInfo& stored, Part part, const std::vector<int64_t>& shape, uint64_t bytes) {
    const auto [it, is_new] = recipes_.try_emplace(hf, Recipe{infos_.size(), {}});
    if (is_new) infos_.push_back({.name = hf, .stored_name = stored.name, .format = stored.format, .shape = shape, .bytes = bytes, .file = stored.file});
    else infos_[it->second.info].bytes += bytes;
    TensorInfo& info = infos_[it->second.info];
    if (part.line && part.index < 0 && part.line->change != Change::none) info.shape = layout(part, shape).hf_shape;
    if (part.line && (part.line->numbers != Numbers::same || (!is_new && info.format != stored.format))) info.format = FormatId::f32;
    it->second.parts.push_back(std::move(part));
    if (it->second.parts.size() > 2) fail("{}: tensor '{}' appears twice", stored.file, hf);
  }

  GgufLayout layout(const Part& part, const std::vector<int64_t>& shape) const { return layout_from_gguf(part.line ? part.line->change : Change::none, shape, config_, part.stored); }

  // A whole tensor of the file, or one of a stack, with the scale that stands beside it: one number, or one for each of a stack.
  StoredWeight element(const Part& part) const {
    const TensorInfo& info = *stored_.find(part.stored);
    StoredWeight w = stored_.get(info);
    const std::vector<float> scales = scales_of(info);
    if (part.index >= 0) {
      const int64_t rows = w.rows / info.shape[0];
      w.rows = rows;
      w.codes = w.codes.slice_rows(part.index * rows, rows);
      if (!scales.empty()) w.scale = scales[scales.size() == 1 ? 0 : static_cast<size_t>(part.index)];
      return w;
    }
    if (scales.empty()) return w;
    if (std::all_of(scales.begin(), scales.end(), [&](float s) { return s == scales[0]; })) {
      w.scale = scales[0];
      return w;
    }
    // Gate and up of all experts in one, each with a scale of its own: no format of blocks has place for that.
    const int64_t rows_each = w.rows / static_cast<int64_t>(scales.size());
    return stored_.made(info.name + " (scaled)", FormatId::f32, w.rows, w.cols, [&](std::byte* out) {
      for (int64_t r = 0; r < w.rows; ++r) {
        auto* row = reinterpret_cast<float*>(out) + r * w.cols;
        decode_stored_row(row, w, r);
        for (int64_t i = 0; i < w.cols; ++i) row[i] *= scales[static_cast<size_t>(r / rows_each)];
      }
    });
  }

  std::vector<float> scales_of(const TensorInfo& weight) const {
    if (!weight.name.ends_with(".weight")) return {};
    const TensorInfo* info = stored_.find(weight.name.substr(0, weight.name.size() - 7) + ".scale");
    if (!info) return {};
    const StoredWeight w = stored_.get(*info);
    const int64_t n = w.rows * w.cols;
    if (n != 1 && (weight.shape.size() < 2 || n != weight.shape[0])) fail("{}: tensor '{}' has {} numbers for '{}', expected one, or one for each expert", info->file, info->name, n, weight.name);
    std::vector<float> scales(static_cast<size_t>(n));
    for (int64_t r = 0; r < w.rows; ++r) decode_stored_row(scales.data() + r * w.cols, w, r);
    return scales;
  }

  struct Piece {
    StoredWeight w;
    GgufLayout layout;
    Numbers numbers;
  };

  StoredWeight assembled(const TensorInfo& info, const std::vector<Part>& parts) const {
    std::vector<Piece> pieces;
    int64_t n_numbers = 0;
    bool rows_only = true, one_format = true;
    for (const Part& part : parts) {
      Piece p{element(part), layout(part, stored_.find(part.stored)->shape), part.line ? part.line->numbers : Numbers::same};
      if (p.layout.hf_shape != info.shape) fail("{}: tensors '{}' and '{}' do not fit together as '{}'", info.file, info.stored_name, part.stored, info.name);
      n_numbers += p.w.rows * p.w.cols;
      rows_only &= p.layout.whole_rows && p.numbers == Numbers::same && p.layout.gguf_shape.back() == p.layout.hf_shape.back();
      one_format &= p.w.format == parts_format(pieces, p) && p.w.scale == (pieces.empty() ? p.w.scale : pieces[0].w.scale);
      pieces.push_back(std::move(p));
    }
    if (n_numbers != numbers_in(info.shape)) fail("{}: '{}' is incomplete: of its {} numbers the file has {} ('{}')", info.file, info.name, numbers_in(info.shape), n_numbers, info.stored_name);
    if (n_numbers == 0) return {.format = pieces[0].w.format, .codes = {.format = pieces[0].w.format}};             // whatever its other dimensions claim
    const int64_t cols = info.shape.empty() ? 1 : info.shape.back(), rows = n_numbers / cols;
    if (rows_only && one_format) {
      StoredWeight w = stored_.made(info.name, pieces[0].w.format, rows, cols, [&](std::byte* out) { move_rows(out, pieces, cols); });
      w.scale = pieces[0].w.scale;
      return w;
    }
    // Numbers that move within rows leave their blocks; plain ones keep their format.
    const bool plain = one_format && pieces[0].numbers == Numbers::same && pieces[0].w.scale == 1.0f && (pieces[0].w.format == FormatId::bf16 || pieces[0].w.format == FormatId::f16);
    const FormatId to = plain ? pieces[0].w.format : FormatId::f32;
    return stored_.made(info.name, to, rows, cols, [&](std::byte* out) { move_numbers(out, to, pieces, rows, cols); });
  }

  static FormatId parts_format(const std::vector<Piece>& before, const Piece& p) { return before.empty() ? p.w.format : before[0].w.format; }

  static void move_rows(std::byte* out, const std::vector<Piece>& pieces, int64_t cols) {
    for (const Piece& p : pieces) {
      const auto bytes = static_cast<size_t>(row_bytes(p.w.format, cols));
      for (int64_t r = 0; r < p.w.rows; ++r) std::memcpy(out + static_cast<size_t>(p.layout.same_order ? r : p.layout.place(r, 0).row) * bytes, p.w.codes.row(r), bytes);
    }
  }

  static void move_numbers(std::byte* out, FormatId to, const std::vector<Piece>& pieces, int64_t rows, int64_t cols) {
    std::vector<float> all(static_cast<size_t>(rows * cols)), row;
    for (const Piece& p : pieces) {
      row.resize(static_cast<size_t>(p.w.cols));
      for (int64_t r = 0; r < p.w.rows; ++r) {
        decode_stored_row(row.data(), p.w, r);
        for (int64_t c = 0; c < p.w.cols; ++c) {
          const Place at = p.layout.same_order ? Place{0, r * p.w.cols + c} : p.layout.place(r, c);
          all[static_cast<size_t>(at.row * cols + at.col)] = from_gguf(p.numbers, row[static_cast<size_t>(c)]);
        }
      }
    }
    for (int64_t r = 0; r < rows; ++r) format(to).encode_row(out + r * row_bytes(to, cols), all.data() + r * cols, cols);
  }

  [[noreturn]] void fail_missing(std::string_view name) const {
    TensorTable names;                       // for its list of the nearest
    for (const TensorInfo& info : infos_) names.add(info, nullptr);
    names.fail_missing(name, files_[0]->path());
  }

  std::vector<std::shared_ptr<const GgufFile>> files_;
  Json config_;
  TensorTable stored_;                       // by the file's names
  std::vector<TensorInfo> infos_;            // by Hugging Face's
  std::unordered_map<std::string, Recipe> recipes_;
};

const GgufTensor* find_tensor(const std::vector<std::shared_ptr<const GgufFile>>& files, std::string_view name) {
  for (const auto& file : files)
    for (const GgufTensor& t : file->tensors())
      if (t.name == name) return &t;
  return nullptr;
}

std::vector<float> floats_of(const std::vector<std::shared_ptr<const GgufFile>>& files, std::string_view name) {
  const GgufTensor* t = find_tensor(files, name);
  if (!t) return {};
  const int64_t n = numbers_in(t->shape);
  if (n > 1 << 20 || t->format != FormatId::f32) fail("{}: tensor '{}' should be a short list of f32", files[0]->path(), name);
  std::vector<float> values(static_cast<size_t>(n));
  std::memcpy(values.data(), t->data, static_cast<size_t>(n) * sizeof(float));
  return values;
}

}  // namespace

std::vector<std::shared_ptr<const GgufFile>> open_gguf_splits(const std::string& path) {
  std::vector<std::shared_ptr<const GgufFile>> files = {std::make_shared<const GgufFile>(path)};
  const int64_t n = files[0]->metadata().integer("split.count").value_or(1);
  if (n <= 1) return files;
  const std::string tail = fmt::format("-of-{:05}.gguf", n);
  if (n > 10000 || path.size() < tail.size() + 6 || !path.ends_with(tail))
    fail("{}: metadata 'split.count' says the model has {} files, but this one is not named '...-00001{}'; give all of them their original names", path, n, tail);
  const std::string head = path.substr(0, path.size() - tail.size() - 5);
  files.clear();
  for (int64_t i = 1; i <= n; ++i) {
    const std::string part = fmt::format("{}{:05}{}", head, i, tail);
    std::error_code ignored;
    if (!std::filesystem::exists(part, ignored)) fail("{}: part {} of {} of this model is missing ({}); download it again", path, i, n, part);
    files.push_back(std::make_shared<const GgufFile>(part));
  }
  return files;
}

namespace {

GgufModel open_model(const std::vector<std::shared_ptr<const GgufFile>>& files) {
  const GgufFile& first = *files[0];
  const GgufArchitecture& a = gguf_architecture_of(first);
  const GgufRopeFactors rope = {.freqs = floats_of(files, "rope_freqs.weight"), .long_factor = floats_of(files, "rope_factors_long.weight"), .short_factor = floats_of(files, "rope_factors_short.weight")};
  const GgufTensor* embedding = find_tensor(files, "token_embd.weight");
  const int64_t n_rows = embedding && embedding->shape.size() == 2 ? embedding->shape[0] : 0;
  GgufModel model{.config = config_from_gguf(first, a, rope, n_rows, find_tensor(files, "output.weight") != nullptr)};
  // Files we wrote carry the original config.json, for what GGUF has no key for (dynamic rope, which layers have no rope).
  if (const auto original = first.metadata().string("ridge.config")) {
    Json config = normalize_config(parse_json(*original, first.path() + ": metadata 'ridge.config'"), first.path());
    for (const auto& [key, value] : model.config.items())
      if (!config.contains(key)) config[key] = value;
    if (const GgufArchitecture* same = gguf_architecture_of(config); same && same->gguf == a.gguf) model.config = std::move(config);
  }
  const GgufArchitecture* chosen = gguf_architecture_of(model.config);
  model.weights = std::make_unique<GgufWeights>(files, chosen && chosen->gguf == a.gguf ? *chosen : a, model.config);
  return model;
}

}  // namespace

GgufModel open_gguf_model(const std::vector<std::shared_ptr<const GgufFile>>& files) {
  try {
    return open_model(files);
  } catch (const Error& e) {
    // What is wrong with a configuration or a tensor's shape is found where no file is known.
    if (std::string_view(e.what()).find(files[0]->path()) != std::string_view::npos) throw;
    fail("{}: {}", files[0]->path(), e.what());
  }
}

}  // namespace ridge
