#include "files/tensor_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "formats/nvfp4.h"

namespace ridge {
namespace {

float largest_magnitude(const StoredWeight& w) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  float largest = 0;
  for (int64_t r = 0; r < w.rows; ++r) {
    decode_stored_row(row.data(), w, r);
    for (const float x : row) {
      if (!std::isfinite(x)) fail("tensor '{}' has the value {} in row {}; a model with infinite weights cannot be quantized", w.name, x, r);
      largest = std::max(largest, std::fabs(x));
    }
  }
  return largest;
}

}  // namespace

int64_t TensorSource::rows() const {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
  return n;
}

uint64_t TensorSource::bytes() const { return static_cast<uint64_t>(rows() * row_bytes(format, cols())); }

void TensorSource::numbers_of_row(float* out, int64_t row) const {
  if (decode_row) return decode_row(out, row);
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(format, cols())));
  encode_row(bytes.data(), row);
  ridge::format(format).decode_row(out, bytes.data(), cols());
  if (scale != 1.0f)
    for (int64_t i = 0; i < cols(); ++i) out[i] *= scale;
}

void encode_numbers(std::byte* out, const float* x, int64_t n, FormatId to, float scale) {
  if (to != FormatId::nvfp4) return format(to).encode_row(out, x, n);
  for (int64_t i = 0; i < n / 64; ++i) encode(reinterpret_cast<BlockNvfp4*>(out)[i], x + 64 * i, scale);
}

std::vector<TensorInfo> model_tensors(const WeightFile& file) {
  static constexpr std::string_view kCompanions[] = {".scale", ".input_scale", ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale", ".input_global_scale"};
  std::vector<TensorInfo> tensors;
  for (TensorInfo info : file.tensors()) {
    if (info.name == "rope_freqs.weight" || info.name == "rope_factors_long.weight" || info.name == "rope_factors_short.weight") continue;
    const bool is_companion = std::any_of(std::begin(kCompanions), std::end(kCompanions), [&](std::string_view suffix) {
      return info.name.ends_with(suffix) && file.has(info.name.substr(0, info.name.size() - suffix.size()) + ".weight");
    });
    if (is_companion) continue;
    if (info.name.ends_with("_scales") && file.has(info.name.substr(0, info.name.size() - 7))) continue;      // of MXFP4 blocks
    if (info.name.ends_with("_blocks") && info.shape.size() >= 3) {
      info.name.resize(info.name.size() - 7);
      info.shape.pop_back();
      info.shape.back() *= 32;
    }
    if (info.name.ends_with(".weight_packed")) info.name.resize(info.name.size() - std::string_view("_packed").size());
    tensors.push_back(std::move(info));
  }
  return tensors;
}

TensorSource converted(const WeightFile& file, const TensorInfo& info, FormatId to) {
  const StoredWeight w = file.get(info.name);
  TensorSource source{.name = info.name, .format = to, .shape = info.shape};
  if (info.shape.size() == 2) source.shape = {w.rows, w.cols};            // as the modules see it: Conv1D turned, packed nibbles counted as numbers
  const bool is_matrix = info.shape.size() >= 2;
  const bool is_number_list = format(w.format).block_elems == 1 && w.format != FormatId::f32 && w.format != FormatId::f16 && w.format != FormatId::bf16 && w.format != FormatId::f64 &&
                              w.format != FormatId::fp8_e4m3 && w.format != FormatId::fp8_e5m2;      // integers (d2t, position ids) are never rounded
  if (!is_matrix || is_number_list || w.cols % format(to).block_elems != 0) source.format = w.format;
  const bool same = source.format == w.format && !w.transposed && !w.scales;
  if (!same && !format(source.format).writable) source.format = FormatId::f32;
  source.decode_row = [w](float* out, int64_t r) { decode_stored_row(out, w, r); };
  source.rows_as_stored = static_cast<bool>(w.scales) || format(w.format).block_elems > 1;
  if (same) {
    source.scale = w.scale;
    source.encode_row = [w](std::byte* out, int64_t r) { std::memcpy(out, w.codes.row(r), static_cast<size_t>(row_bytes(w.format, w.cols))); };
    return source;
  }
  if (source.format == FormatId::nvfp4) {
    source.scale = nvfp4_tensor_scale(largest_magnitude(w));
    source.encode_row = [w, scale = source.scale, x = std::vector<float>(static_cast<size_t>(w.cols))](std::byte* out, int64_t r) mutable {
      decode_stored_row(x.data(), w, r);
      encode_numbers(out, x.data(), w.cols, FormatId::nvfp4, scale);
    };
    return source;
  }
  source.encode_row = [w, to = source.format, x = std::vector<float>(static_cast<size_t>(w.cols))](std::byte* out, int64_t r) mutable {
    decode_stored_row(x.data(), w, r);
    for (const float v : x)
      if (!std::isfinite(v)) fail("tensor '{}' has the value {} in row {}; a model with infinite weights cannot be quantized", w.name, v, r);
    format(to).encode_row(out, x.data(), w.cols);
  };
  return source;
}

TensorSource f32_source(std::string name, std::vector<int64_t> shape, std::vector<float> values) {
  TensorSource source{.name = std::move(name), .format = FormatId::f32, .shape = std::move(shape)};
  CHECK_EQ(source.bytes(), values.size() * sizeof(float));
  source.encode_row = [values = std::move(values), n = source.cols()](std::byte* out, int64_t r) {
    const auto row = std::as_bytes(std::span(values).subspan(static_cast<size_t>(r * n), static_cast<size_t>(n)));
    std::copy(row.begin(), row.end(), out);                                 // a row may be empty
  };
  return source;
}

}  // namespace ridge
