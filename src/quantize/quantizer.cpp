#include "quantize/quantizer.h"

#include <memory>
#include <regex>

#include "base/error.h"
#include "files/gguf_tokenizer.h"
#include "files/gguf_writer.h"

namespace ridge {
namespace {

bool is_table(const std::string& name) {
  const std::string component = component_of(name);
  return component == "embedding" || component == "head";
}

bool is_number(FormatId id) {
  switch (id) {
    case FormatId::i8: case FormatId::i16: case FormatId::i32: case FormatId::i64: case FormatId::u8: case FormatId::u16: case FormatId::u32: case FormatId::u64: case FormatId::boolean: return false;
    default: return true;
  }
}

bool matches(const std::string& pattern, const std::string& name) {
  if (pattern.empty()) return false;
  try {
    return std::regex_search(name, std::regex(pattern));
  } catch (const std::regex_error& e) {
    fail("--keep '{}' is not a regular expression: {}", pattern, e.what());
  }
}

// Measures what encoding does to each row as it passes: the numbers before, and those the encoded bytes stand for.
TensorSource measured(TensorSource source, const StoredWeight& before, ComponentError& into) {
  auto x = std::make_shared<std::vector<float>>(size_t(before.cols)), y = std::make_shared<std::vector<float>>(size_t(before.cols));
  source.encode_row = [inner = std::move(source.encode_row), before, x, y, &into, id = source.format, scale = source.scale](std::byte* out, int64_t r) {
    inner(out, r);
    decode_stored_row(x->data(), before, r);
    format(id).decode_row(y->data(), out, before.cols);
    double error = 0, sum = 0;
    for (int64_t i = 0; i < before.cols; ++i) {
      const double a = (*x)[size_t(i)], d = a - double((*y)[size_t(i)]) * double(scale);
      error += d * d;
      sum += a * a;
    }
    into.squared_error += error;
    into.squared_sum += sum;
  };
  return source;
}

}  // namespace

FormatId planned_format(const QuantizeOptions& options, const std::string& name, const std::vector<int64_t>& shape, FormatId stored) {
  if (shape.size() < 2 || !is_number(stored) || matches(options.keep, name)) return stored;
  const bool narrow = format(options.format).block_bytes * 8 < 6 * format(options.format).block_elems;
  const FormatId wanted = is_table(name) ? options.embedding.value_or(narrow ? FormatId::q8_0 : options.format) : options.format;
  if (component_of(name) == "norms") return stored;
  for (const FormatId id : {wanted, FormatId::q8_0})
    if (shape.back() % format(id).block_elems == 0) return id;
  return stored;
}

QuantizeReport quantize_to_gguf(const Checkpoint& checkpoint, const std::string& path, const QuantizeOptions& options) {
  for (const FormatId id : {options.format, options.embedding.value_or(options.format)})
    if (!format(id).writable) fail("the format {} cannot be written", format(id).name);
  const WeightFile& file = *checkpoint.weights;
  QuantizeReport report;
  const std::vector<TensorInfo> tensors = model_tensors(file);
  for (const TensorInfo& info : tensors) report.of(info.name);          // all components exist before any is pointed to
  std::vector<TensorSource> sources;
  for (const TensorInfo& info : tensors) {
    const StoredWeight stored = file.get(info.name);
    TensorSource source = converted(file, info, planned_format(options, info.name, info.shape, stored.format));
    ComponentError& c = report.of(info.name);
    c.n_tensors += 1;
    c.n_params += stored.rows * stored.cols;
    c.bytes_before += int64_t(info.bytes);
    c.bytes_after += int64_t(source.bytes());
    c.formats[std::string(format(source.format).name)] += 1;
    const bool readable = format(source.format).readable && is_number(source.format);
    sources.push_back(readable && source.format != stored.format ? measured(std::move(source), stored, c) : std::move(source));
  }
  std::vector<GgufPair> metadata = tokenizer_metadata(checkpoint);
  write_gguf_model(path, checkpoint.config, metadata, sources, [&](uint64_t done, uint64_t total) {
    if (options.progress && total > 0) options.progress(double(done) / double(total));
  });
  return report;
}

}  // namespace ridge
