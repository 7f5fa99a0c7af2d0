#include "model/weights.h"

#include <algorithm>
#include <charconv>

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

StoredWeight slice(StoredWeight w, Rows rows) {
  if (rows.n == rows.total) return w;
  if (w.index || w.zeros) fail("tensor {} is fused and has planes that cannot be cut; use a version of the model in bf16 or nvfp4", w.name);
  w.rows = rows.n;
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
  StoredWeight w = file_.get(name);
  used_.insert(name);
  const int64_t expected_rows = transposed ? cols : rows.total, expected_cols = transposed ? rows.total : cols;
  if (w.rows != expected_rows || w.cols != expected_cols)
    fail("tensor {} has shape [{}, {}], but config.json promises [{}, {}]: the two are not of the same model", name, w.rows, w.cols, expected_rows, expected_cols);
  require_readable(w);
  if (transposed) {
    if (!is_plain(w.format)) fail("tensor {} is transposed and stored as {}; only plain numbers can be (f32, f16, bf16)", name, format(w.format).name);
    std::swap(w.rows, w.cols);
    w.transposed = true;
  }
  return slice(std::move(w), rows);
}

void Weights::count(std::string_view component, int64_t n_params, int64_t bytes, bool streamed, const std::string& name) {
  const auto it = std::find_if(model_.sizes.begin(), model_.sizes.end(), [&](const ComponentSize& c) { return c.component == component; });
  ComponentSize& size = it != model_.sizes.end() ? *it : model_.sizes.emplace_back(ComponentSize{.component = std::string(component), .streamed = streamed});
  size.n_params += n_params;
  size.bytes += bytes;
  done_bytes_ += bytes;
  if (options_.progress) options_.progress(std::min(1.0, static_cast<double>(done_bytes_) / static_cast<double>(std::max<int64_t>(1, total_bytes_))), name);
}

const Weight* Weights::matrix_rows(std::string_view component, const std::string& name, Rows rows, int64_t cols) {
  const Weight* weight = prepare(checked(name, rows, cols, transposed_));
  count(component, rows.n * cols, weight->bytes, true, name);
  return weight;
}

const Weight* Weights::shared_matrix(std::string_view component, const std::string& name, int64_t rows, int64_t cols) {
  const Weight* weight = prepare(checked(name, {0, rows, rows}, cols, false));
  count(component, 0, weight->bytes, true, name);
  return weight;
}

const Weight* Weights::prepare(const StoredWeight& stored) {
  const Arithmetic arithmetic{.x = is_plain(stored.format) ? FormatId::f32 : activations_};
  model_.weights.push_back(std::make_unique<Weight>(backend_.prepare(stored, arithmetic)));
  return model_.weights.back().get();
}

Weight Weights::table(std::string_view component, const std::string& name, int64_t rows, int64_t cols) {
  const Weight weight = backend_.prepare_table(checked(name, {0, rows, rows}, cols, false));
  count(component, rows * cols, weight.bytes, false, name);
  return weight;
}

Tensor Weights::vector_part(std::string_view component, const std::string& name, Rows part) {
  const StoredWeight w = file_.get(name);
  used_.insert(name);
  if (w.rows * w.cols != part.total || (w.rows != 1 && w.cols != 1))
    fail("tensor {} has shape [{}, {}], but config.json promises {} numbers: the two are not of the same model", name, w.rows, w.cols, part.total);
  require_readable(w);
  std::vector<float> values(static_cast<size_t>(part.total));
  for (int64_t r = 0; r < w.rows; r++) decode_stored_row(values.data() + r * w.cols, w, r);
  count(component, part.n, part.n * 4, true, name);
  return backend_.upload(values.data() + part.first, part.n);
}

void Weights::refuse_unused(const std::string& layers, int n_layers) const {
  for (const TensorInfo& t : file_.tensors()) {
    const std::string_view name = t.name;
    if (!name.starts_with(layers) || used_.contains(name)) continue;
    int layer = -1;
    std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
    const bool learned = (name.ends_with(".weight") || name.ends_with(".bias")) && !name.ends_with(".attn.bias");
    if (!learned || layer < 0 || layer >= n_layers) continue;
    fail("tensor {} is of no use in a {} model of this configuration, so the result would not be the author's: model_type or another key of config.json is wrong, or the family has "
         "a variant that is not supported", t.name, model_.family);
  }
}

}  // namespace ridge
