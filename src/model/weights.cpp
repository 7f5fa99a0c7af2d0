#include "model/weights.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace ridge {
namespace {

bool is_plain(FormatId id) { return format(id).block_elems == 1; }

// The smaller a model, the closer its decisions: in one of 135 million parameters int8 activations move logits by as much as the first two tokens are apart.
constexpr int64_t kSmallModel = 300'000'000;

FormatId automatic_activations(const WeightFile& file) {
  uint64_t n_quantized = 0;
  for (const TensorInfo& t : file.tensors()) {
    const Format& f = format(t.format);
    if (f.block_elems > 1) n_quantized += t.bytes / static_cast<uint64_t>(f.block_bytes) * static_cast<uint64_t>(f.block_elems);
    else if (t.format == FormatId::u8) n_quantized += 2 * t.bytes;                       // planes of nibbles
  }
  return n_quantized < kSmallModel ? FormatId::i16 : FormatId::i8;
}

void require_readable(const StoredWeight& w) {
  if (!format(w.format).readable)
    fail("tensor {} is stored in a format that cannot be read ({}); use a version of the model in bf16, q8_0, q4_0 or nvfp4", w.name, format(w.format).name);
}

// The rows of a plane one after the other in memory of their own, which the model keeps.
Tensor gather(const Tensor& plane, Rows rows, Model& model) {
  const int64_t n_bytes = row_bytes(plane.format, plane.cols);
  auto memory = std::make_unique<std::byte[]>(static_cast<size_t>(rows.n * n_bytes));
  for (int64_t i = 0; i < rows.n; i++) std::memcpy(memory.get() + i * n_bytes, plane.row(rows.at(i)), static_cast<size_t>(n_bytes));
  model.gathered.push_back(std::move(memory));
  return {model.gathered.back().get(), plane.format, rows.n, plane.cols, n_bytes};
}

// The same for columns of plain numbers.
Tensor gather_columns(const Tensor& plane, Rows columns, Model& model) {
  const int64_t n_bytes = format(plane.format).block_bytes, stride = columns.n * n_bytes;
  auto memory = std::make_unique<std::byte[]>(static_cast<size_t>(plane.rows * stride));
  for (int64_t r = 0; r < plane.rows; r++)
    for (int64_t i = 0; i < columns.n; i++)
      std::memcpy(memory.get() + r * stride + i * n_bytes, plane.row(r) + columns.at(i) * n_bytes, static_cast<size_t>(n_bytes));
  model.gathered.push_back(std::move(memory));
  return {model.gathered.back().get(), plane.format, plane.rows, columns.n, stride};
}

StoredWeight slice(StoredWeight w, Rows rows, Model& model) {
  if (rows.n == rows.total) return w;
  if (w.index || w.zeros) fail("tensor {} is fused and has planes that cannot be cut; use a version of the model in bf16 or nvfp4", w.name);
  w.rows = rows.n;
  if (rows.run > 0) {
    if (rows.run == 1 && !w.transposed) {                             // rows that take turns lie a fixed number of bytes apart
      for (Tensor* plane : {&w.codes, &w.scales})
        if (*plane) *plane = {plane->row(rows.first), plane->format, rows.n, plane->cols, plane->stride * rows.stride};
      return w;
    }
    if (w.transposed) fail("tensor {} is fused head by head and transposed; it can be the one or the other", w.name);
    w.codes = gather(w.codes, rows, model);
    if (w.scales) w.scales = gather(w.scales, rows, model);
    return w;
  }
  w.codes = w.transposed ? w.codes.slice_cols(rows.first, rows.n) : w.codes.slice_rows(rows.first, rows.n);
  if (w.scales) w.scales = w.scales.slice_rows(rows.first, rows.n);
  return w;
}

}  // namespace

Weights::Weights(const Checkpoint& checkpoint, Backend& backend, const ModelOptions& options, Model& model)
    : file_(*checkpoint.weights), backend_(backend), options_(options),
      activations_(options.activations != FormatId::unknown ? options.activations : automatic_activations(file_)), model_(model) {
  for (const TensorInfo& t : file_.tensors()) total_bytes_ += static_cast<int64_t>(t.bytes);
}

StoredWeight Weights::checked(const std::string& name, Rows rows, int64_t cols, bool transposed) {
  const int64_t expected_rows = transposed ? cols : rows.total, expected_cols = transposed ? rows.total : cols;
  StoredWeight w = file_.shaped(name, expected_rows, expected_cols);
  used_.insert(name);
  if (w.rows != expected_rows || w.cols != expected_cols)
    fail("tensor {} has shape [{}, {}], but config.json promises [{}, {}]: the two are not of the same model", name, w.rows, w.cols, expected_rows, expected_cols);
  require_readable(w);
  if (transposed) {
    if (!is_plain(w.format)) fail("tensor {} is transposed and stored as {}; only plain numbers can be (f32, f16, bf16)", name, format(w.format).name);
    std::swap(w.rows, w.cols);
    w.transposed = true;
  }
  return slice(std::move(w), rows, model_);
}

ComponentSize& Weights::count(std::string_view component, int64_t n_params, int64_t bytes, bool streamed, const std::string& name) {
  const auto it = std::find_if(model_.sizes.begin(), model_.sizes.end(), [&](const ComponentSize& c) { return c.component == component; });
  ComponentSize& size = it != model_.sizes.end() ? *it : model_.sizes.emplace_back(ComponentSize{.component = std::string(component), .streamed = streamed});
  size.n_params += n_params;
  size.bytes += bytes;
  done_bytes_ += bytes;
  if (options_.progress) options_.progress(std::min(1.0, static_cast<double>(done_bytes_) / static_cast<double>(std::max<int64_t>(1, total_bytes_))), name);
  return size;
}

const Weight* Weights::matrix_rows(std::string_view component, const std::string& name, Rows rows, int64_t cols) {
  const Weight* weight = prepare(checked(name, rows, cols, transposed_), component == "experts" ? 32 : 0);      // all experts of a layer alike, whatever their scales
  count(component, rows.n * cols, weight->bytes, true, name);
  return weight;
}

// Blocks of a quantized tensor run along its rows, so what was a row cannot become a column: it is decoded, and kept in f16 (which has more bits than any of
// these formats; f32 where a number is too large for it).
const Weight* Weights::matrix_rows_transposed(std::string_view component, const std::string& name, Rows rows, int64_t cols) {
  StoredWeight w = checked(name, rows, cols, false);
  if (!is_plain(w.format) || w.codes.format != w.format || w.scales || w.transposed) {
    std::vector<float> values(static_cast<size_t>(rows.n * cols));
    float largest = 0;
    for (int64_t r = 0; r < rows.n; r++) decode_stored_row(values.data() + r * cols, w, r);
    for (const float v : values) largest = std::max(largest, std::abs(v));
    const FormatId kept = largest < 65504.0f ? FormatId::f16 : FormatId::f32;
    const auto n_bytes = static_cast<size_t>(row_bytes(kept, rows.n * cols));
    model_.gathered.push_back(std::make_unique<std::byte[]>(n_bytes));
    format(kept).encode_row(model_.gathered.back().get(), values.data(), rows.n * cols);
    w = {.name = name, .format = kept, .codes = view(model_.gathered.back().get(), kept, rows.n, cols)};
  }
  w.rows = cols;
  w.cols = rows.n;
  w.transposed = true;
  const Weight* weight = prepare(w);
  count(component, rows.n * cols, weight->bytes, true, name);
  return weight;
}

const Weight* Weights::expert(std::string_view component, const std::string& name, int e, int n_experts, Rows rows, int64_t cols, bool transposed) {
  if (!transposed) {
    const int64_t before = rows.total * e;
    return matrix_rows(component, name, {before + rows.first, rows.n, rows.total * n_experts, rows.run, rows.stride}, cols);
  }
  StoredWeight w = checked(name, {cols * e, cols, cols * n_experts}, rows.total, false);
  if (!is_plain(w.format) || w.scales) fail("tensor {} is transposed and stored as {}; only plain numbers can be (f32, f16, bf16)", name, format(w.format).name);
  w.codes = rows.run > 0 ? gather_columns(w.codes, rows, model_) : w.codes.slice_cols(rows.first, rows.n);
  w.rows = rows.n;
  w.cols = cols;
  w.transposed = true;
  const Weight* weight = prepare(w);
  count(component, rows.n * cols, weight->bytes, true, name);
  return weight;
}

Tensor Weights::expert_biases(std::string_view component, const std::string& name, int n_experts, Rows rows) {
  const StoredWeight w = checked(name, {0, n_experts, n_experts}, rows.total, false);
  std::vector<float> all(static_cast<size_t>(rows.total)), chosen;
  for (int e = 0; e < n_experts; e++) {
    decode_stored_row(all.data(), w, e);
    for (int64_t i = 0; i < rows.n; i++) chosen.push_back(all[static_cast<size_t>(rows.at(i))]);
  }
  count(component, n_experts * rows.n, n_experts * rows.n * 4, true, name);
  const Tensor uploaded = backend_.upload(chosen.data(), n_experts * rows.n);
  return {uploaded.data, FormatId::f32, n_experts, rows.n, rows.n * 4};
}

Tensor Weights::expert_of_token(std::string_view component, const std::string& name, int64_t n_vocab, int64_t top_k, int n_experts) {
  const StoredWeight w = checked(name, {0, n_vocab, n_vocab}, top_k, false);
  std::vector<float> row(static_cast<size_t>(top_k)), bits;
  for (int64_t r = 0; r < n_vocab; r++) {
    decode_stored_row(row.data(), w, r);
    for (const float v : row) {
      if (!(v >= 0 && v < static_cast<float>(n_experts))) fail("tensor {} sends token {} to expert {}, but there are {}", name, r, v, n_experts);
      bits.push_back(std::bit_cast<float>(static_cast<int32_t>(v)));
    }
  }
  count(component, 0, n_vocab * top_k * 4, false, name);
  const Tensor uploaded = backend_.upload(bits.data(), n_vocab * top_k);
  return {uploaded.data, FormatId::i32, n_vocab, top_k, top_k * 4};
}

const Weight* Weights::shared_matrix(std::string_view component, const std::string& name, int64_t rows, int64_t cols) {
  const Weight* weight = prepare(checked(name, {0, rows, rows}, cols, false));
  count(component, 0, weight->bytes, true, name).n_shared += rows * cols;
  return weight;
}

const Weight* Weights::prepare(const StoredWeight& stored, int k_block) {
  const Arithmetic arithmetic{.x = is_plain(stored.format) ? FormatId::f32 : activations_, .k_block = k_block};
  model_.weights.push_back(std::make_unique<Weight>(backend_.prepare(stored, arithmetic)));
  return model_.weights.back().get();
}

Weight Weights::table(std::string_view component, const std::string& name, int64_t rows, int64_t cols) {
  const Weight weight = backend_.prepare_table(checked(name, {0, rows, rows}, cols, false));
  count(component, rows * cols, weight.bytes, false, name).n_rows += rows;
  return weight;
}

std::vector<float> Weights::numbers(const std::string& name, int64_t n) {
  const StoredWeight w = file_.get(name);
  if (w.rows != 1 && w.cols != 1) fail("tensor {} has shape [{}, {}], but config.json promises {} numbers: the two are not of the same model", name, w.rows, w.cols, n);
  return values(name, n);
}

std::vector<float> Weights::values(const std::string& name, int64_t n) {
  const StoredWeight w = file_.shaped(name, 1, n);
  used_.insert(name);
  if (w.rows * w.cols != n) fail("tensor {} has shape [{}, {}], but config.json promises {} numbers: the two are not of the same model", name, w.rows, w.cols, n);
  require_readable(w);
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t r = 0; r < w.rows; r++) decode_stored_row(values.data() + r * w.cols, w, r);
  if (std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); })) fail("tensor {} holds NaN: the file is damaged; fetch it again", name);
  return values;
}

Tensor Weights::constant(std::string_view component, const std::string& name, const std::vector<float>& values, int64_t rows) {
  const auto n = static_cast<int64_t>(values.size());
  count(component, n, n * 4, true, name);
  return view(backend_.upload(values.data(), n).data, FormatId::f32, rows, n / rows);
}

Tensor Weights::vector_part(std::string_view component, const std::string& name, Rows part) {
  const std::vector<float> values = numbers(name, part.total);
  std::vector<float> chosen(static_cast<size_t>(part.n));
  for (int64_t i = 0; i < part.n; i++) chosen[static_cast<size_t>(i)] = values[static_cast<size_t>(part.at(i))];
  count(component, part.n, part.n * 4, true, name);
  return backend_.upload(chosen.data(), part.n);
}

Tensor Weights::scaled_vector(std::string_view component, const std::string& name, int64_t n, float scale) {
  std::vector<float> values = numbers(name, n);
  for (float& v : values) v *= scale;
  count(component, n, n * 4, true, name);
  return backend_.upload(values.data(), n);
}

Tensor Weights::vectors(std::string_view component, const std::vector<std::string>& names, int64_t n_each) {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> values = numbers(name, n_each);
    all.insert(all.end(), values.begin(), values.end());
    count(component, n_each, n_each * 4, true, name);
  }
  return backend_.upload(all.data(), static_cast<int64_t>(all.size()));
}

float Weights::number(std::string_view component, const std::string& name) {
  count(component, 1, 0, true, name);
  return numbers(name, 1)[0];
}

void Weights::refuse_unused(const std::string& layers, int n_layers) const {
  for (const TensorInfo& t : file_.tensors()) {
    const std::string_view name = t.name;
    if (!name.starts_with(layers) || used_.contains(name)) continue;
    int layer = -1;
    std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
    const bool learned = (name.ends_with(".weight") || name.ends_with(".bias")) && !name.ends_with(".attn.bias") && !name.ends_with(".attention.bias");
    if (!learned || layer < 0 || layer >= n_layers) continue;
    fail("tensor {} is of no use in a {} model of this configuration, so the result would not be the author's: model_type or another key of config.json is wrong, or the family has "
         "a variant that is not supported", t.name, model_.family);
  }
}

}  // namespace ridge
