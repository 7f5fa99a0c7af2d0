#include "files/quant_config.h"

#include "base/error.h"

namespace ridge {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string sibling(std::string_view name, std::string_view suffix) {
  return std::string(name.substr(0, name.size() - kWeight.size())).append(suffix);
}

bool is_weight(std::string_view name) { return name.size() > kWeight.size() && name.ends_with(kWeight); }

// A grid of f32 numbers, one for each 128 x 128 of the weight (the last ones may be cut), spread to one row per row of the weight.
Tensor spread_block_scales(const TensorTable& table, const TensorInfo& info, const StoredWeight& w) {
  constexpr int64_t kBlock = 128;
  const StoredWeight grid = table.get(info);
  const int64_t rows = (w.rows + kBlock - 1) / kBlock, cols = (w.cols + kBlock - 1) / kBlock;
  if (grid.rows != rows || grid.cols != cols)
    fail("{}: '{}' is [{}, {}], but fp8 codes of [{}, {}] in blocks of 128 x 128 need scales of [{}, {}]", info.file, info.name, grid.rows, grid.cols, w.rows, w.cols, rows, cols);
  return table.made(info.name + " (rows)", FormatId::f32, w.rows, cols, [&](std::byte* out) {
    for (int64_t r = 0; r < w.rows; ++r) decode_stored_row(reinterpret_cast<float*>(out) + r * cols, grid, r / kBlock);
  }).codes;
}

// e4m3 codes with a number for 128 x 128 of them (weight_scale_inv: DeepSeek), for each row, or for all (weight_scale).
StoredWeight fp8_planes(const TensorTable& table, std::string_view name, const TensorInfo& codes, const TensorInfo* scales, const TensorInfo* block_scales) {
  StoredWeight w = table.get(codes);
  w.name = name;
  if (block_scales) {
    w.scales = spread_block_scales(table, *block_scales, w);
    return w;
  }
  const StoredWeight numbers = table.get(*scales);
  const int64_t n = numbers.rows * numbers.cols;
  if (n == 1) {
    w.scale = table.scalar(*scales);
  } else if (n == w.rows && (numbers.rows == 1 || numbers.cols == 1)) {
    w.scales = table.made(scales->name + " (rows)", FormatId::f32, w.rows, 1, [&](std::byte* out) {
      for (int64_t r = 0; r < numbers.rows; ++r) decode_stored_row(reinterpret_cast<float*>(out) + r * numbers.cols, numbers, r);
    }).codes;
  } else {
    fail("{}: '{}' is [{}, {}]: fp8 codes of [{}, {}] need one scale, or one for each row", scales->file, scales->name, numbers.rows, numbers.cols, w.rows, w.cols);
  }
  return w;
}

// gpt-oss: blocks u8 [..., rows, n, 16] of 32 codes each, and e8m0 scales u8 [..., rows, n].
StoredWeight mxfp4_planes(const TensorTable& table, std::string_view name, const TensorInfo& blocks, const TensorInfo& scales) {
  std::vector<int64_t> expected = blocks.shape;
  if (!expected.empty()) expected.pop_back();
  if (blocks.format != FormatId::u8 || scales.format != FormatId::u8 || blocks.shape.size() < 3 || blocks.shape.back() != 16 || scales.shape != expected)
    fail("{}: '{}' and '{}' are not MXFP4: bytes of shape [..., n, 16] and [..., n] are needed", blocks.file, blocks.name, scales.name);
  StoredWeight w = table.get(blocks);
  const int64_t n = expected.back();
  w.name = name;
  w.format = FormatId::mxfp4;
  w.rows = n > 0 ? w.rows / n : 0;
  w.cols = 32 * n;
  w.codes = view(w.codes.data, FormatId::u8, w.rows, 16 * n);
  w.scales = view(table.get(scales).codes.data, FormatId::u8, w.rows, n);
  return w;
}

}  // namespace

bool has_quantized(const TensorTable& table, std::string_view name) {
  return table.find(std::string(name) + "_blocks") || (is_weight(name) && table.find(sibling(name, ".weight_packed")));
}

std::optional<StoredWeight> assemble_quantized(const TensorTable& table, std::string_view name) {
  if (const TensorInfo* blocks = table.find(std::string(name) + "_blocks")) {
    const TensorInfo* scales = table.find(std::string(name) + "_scales");
    if (!scales) fail("{}: '{}' has no '{}_scales' beside it; the checkpoint is not complete", blocks->file, blocks->name, name);
    return mxfp4_planes(table, name, *blocks, *scales);
  }
  if (!is_weight(name)) return std::nullopt;
  const TensorInfo* codes = table.find(name);
  const TensorInfo* packed = codes ? codes : table.find(sibling(name, ".weight_packed"));
  if (const TensorInfo* other = table.find(sibling(name, ".qweight")); !codes && other)
    fail("{}: '{}' is quantized by GPTQ or AWQ ('{}'), which is not supported yet; use the bf16, a GGUF or an NVFP4 version of this model", other->file, name, other->name);
  if (!packed) return std::nullopt;
  const TensorInfo* scales = table.find(sibling(name, ".weight_scale"));
  const TensorInfo* inverse_scales = table.find(sibling(name, ".weight_scale_inv"));
  const bool is_codes = packed->format == FormatId::u8 || packed->format == FormatId::i8 || packed->format == FormatId::fp8_e4m3 || packed->format == FormatId::fp8_e5m2;
  if (!scales && !inverse_scales && codes) return std::nullopt;
  const auto is_numbers = [](const TensorInfo* t) { return t && (t->format == FormatId::f32 || t->format == FormatId::bf16 || t->format == FormatId::f16); };
  if (codes && codes->format == FormatId::fp8_e4m3 && (is_numbers(scales) || is_numbers(inverse_scales)))
    return fp8_planes(table, name, *codes, scales, is_numbers(inverse_scales) ? inverse_scales : nullptr);
  if (packed->format != FormatId::u8 || !scales || scales->format != FormatId::fp8_e4m3) {
    if (!is_codes && codes) return std::nullopt;
    const TensorInfo* named = scales ? scales : inverse_scales ? inverse_scales : packed;
    fail("{}: '{}' is stored as {} codes with '{}' ({}), a quantization that is not supported yet; use the bf16, a GGUF or an NVFP4 version of this model", packed->file,
         packed->name, format(packed->format).name, named->name, format(named->format).name);
  }
  StoredWeight w = table.get(*packed);
  w.name = name;
  w.format = FormatId::nvfp4;
  w.cols = w.codes.cols * 2;
  w.scales = table.get(*scales).codes;
  if (w.scales.rows != w.rows || w.scales.cols * 16 != w.cols)
    fail("{}: '{}' is [{}, {}], but nvfp4 codes '{}' of [{}, {}] bytes need scales of [{}, {}]", scales->file, scales->name, w.scales.rows, w.scales.cols, packed->name, w.rows,
         w.codes.cols, w.rows, w.cols / 16);
  if (const TensorInfo* scale = table.find(sibling(name, ".weight_scale_2"))) w.scale = table.scalar(*scale);
  else if (const TensorInfo* divisor = table.find(sibling(name, ".weight_global_scale"))) w.scale = 1.0f / table.scalar(*divisor);
  else fail("{}: '{}' has nvfp4 codes and scales, but neither '.weight_scale_2' nor '.weight_global_scale'", packed->file, name);
  return w;
}

}  // namespace ridge
