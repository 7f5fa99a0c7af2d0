#include "quantize/converter.h"

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "files/gguf_tokenizer.h"
#include "files/gguf_writer.h"
#include "files/safetensors.h"
#include "files/safetensors_writer.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// A folder that exists under its name only once it is complete.
class OutputFolder {
 public:
  explicit OutputFolder(std::string path) : path_(std::move(path)), temporary_(path_ + ".partial") {
    while (temporary_.size() > 9 && path_.ends_with("/")) path_.pop_back(), temporary_ = path_ + ".partial";
    std::error_code error;
    fs::remove_all(temporary_, error);
    if (!fs::create_directories(temporary_, error)) fail("cannot make the folder {}: {}", temporary_, error.message());
  }
  ~OutputFolder() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(temporary_, ignored);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  std::string file(const char* name) const { return temporary_ + "/" + name; }
  void commit() {
    std::error_code error;
    fs::remove(path_, error);                          // an empty folder of that name
    fs::rename(temporary_, path_, error);
    if (error) fail("cannot rename {} to {}: {}", temporary_, path_, error.message());
    committed_ = true;
  }

 private:
  std::string path_, temporary_;
  bool committed_ = false;
};

bool is_float(FormatId f) { return f == FormatId::f64 || f == FormatId::fp8_e4m3 || f == FormatId::fp8_e5m2; }

WriteProgress share_of(const std::function<void(double)>& progress) {
  return [progress](uint64_t done, uint64_t total) {
    if (progress && total > 0) progress(static_cast<double>(done) / static_cast<double>(total));
  };
}

void count(ConvertReport& report, const std::vector<TensorSource>& sources) {
  for (const TensorSource& s : sources) report.bytes += s.bytes();
  report.n_tensors = sources.size();
}

}  // namespace

ConvertReport convert_to_gguf(const Checkpoint& checkpoint, const std::string& path, const std::optional<QuantizeOptions>& quantized, const std::function<void(double)>& progress) {
  const WeightFile& file = *checkpoint.weights;
  const GgufArchitecture* a = gguf_architecture_of(checkpoint.config);
  std::vector<TensorSource> sources;
  for (const TensorInfo& info : model_tensors(file)) {
    FormatId to = file.get(info.name).format;
    if (quantized) to = planned_format(*quantized, info.name, info.shape, to);
    else if (is_float(to)) to = FormatId::bf16;
    sources.push_back(converted(file, info, to));
  }
  ConvertReport report;
  count(report, sources);
  write_gguf_model(path, checkpoint.config, tokenizer_metadata(checkpoint), sources, share_of(progress), &report.left_out);
  report.architecture = a->gguf;
  report.differences = differences_for_llama_cpp(checkpoint.config, *a, GgufFile(path));
  return report;
}

ConvertReport convert_to_folder(const Checkpoint& checkpoint, const std::string& folder, std::optional<FormatId> plain, const std::function<void(double)>& progress) {
  const WeightFile& file = *checkpoint.weights;
  OutputFolder out(folder);
  std::vector<TensorSource> sources;
  for (const TensorInfo& info : model_tensors(file)) {
    const StoredWeight w = file.get(info.name);
    const bool has_type = safetensors_dtype(w.format) && !w.scales && w.scale == 1.0f;
    sources.push_back(converted(file, info, plain && info.shape.size() > 1 ? *plain : has_type ? w.format : FormatId::bf16));
    if (!safetensors_dtype(sources.back().format)) fail("tensor '{}' is in {}, which safetensors has no type for", info.name, format(sources.back().format).name);
  }
  ConvertReport report;
  count(report, sources);
  write_safetensors(out.file("model.safetensors"), sources, {{"format", "pt"}}, share_of(progress));
  write_file(out.file("config.json"), checkpoint.config.dump(2) + "\n");
  if (!checkpoint.generation_config.empty()) write_file(out.file("generation_config.json"), checkpoint.generation_config.dump(2) + "\n");
  Json tokenizer = checkpoint.tokenizer_config;
  if (!checkpoint.bos_token.empty()) tokenizer["bos_token"] = checkpoint.bos_token;
  if (!checkpoint.eos_token.empty()) tokenizer["eos_token"] = checkpoint.eos_token;
  if (!tokenizer.empty()) write_file(out.file("tokenizer_config.json"), tokenizer.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  if (!checkpoint.chat_template.empty()) write_file(out.file("chat_template.jinja"), checkpoint.chat_template);
  if (!checkpoint.tokenizer_json.empty()) write_file(out.file("tokenizer.json"), checkpoint.tokenizer_json);
  else if (checkpoint.gguf && checkpoint.gguf->metadata().has("tokenizer.ggml.tokens")) write_gguf(out.file("vocabulary.gguf"), tokenizer_metadata(checkpoint), {});
  out.commit();
  return report;
}

}  // namespace ridge
