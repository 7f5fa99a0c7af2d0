#include "files/quant_config.h"

#include "base/error.h"

namespace ridge {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string sibling(std::string_view name, std::string_view suffix) {
  return std::string(name.substr(0, name.size() - kWeight.size())).append(suffix);
}

bool is_weight(std::string_view name) { return name.size() > kWeight.size() && name.ends_with(kWeight); }

}  // namespace

bool has_quantized(const TensorTable& table, std::string_view name) { return is_weight(name) && table.find(sibling(name, ".weight_packed")); }

std::optional<StoredWeight> assemble_quantized(const TensorTable& table, std::string_view name) {
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
