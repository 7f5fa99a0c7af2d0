// `ridge convert`: a model in the other container, safetensors as GGUF or GGUF as safetensors.
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "files/gguf.h"
#include "quantize/converter.h"

namespace ridge {
namespace {

struct ConvertFlags { std::string in, out, format; bool force = false; };

FormatId named_format(const std::string& name, bool to_gguf) {
  const auto id = find_format(name);
  const auto fits = [&](const Format& f, FormatId i) { return f.writable && (to_gguf ? gguf_type_of(i).has_value() : i == FormatId::f32 || i == FormatId::f16 || i == FormatId::bf16); };
  if (id && fits(format(*id), *id)) return *id;
  std::string known;
  for (const Format& f : all_formats())
    if (const auto i = find_format(f.name); i && fits(f, *i)) known += (known.empty() ? "" : ", ") + std::string(f.name);
  fail("--format {}: {} can be in {}", name, to_gguf ? "a .gguf file" : "a folder of safetensors", known);
}

bool holds_something(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return false;
  return !std::filesystem::is_directory(path, ignored) || !std::filesystem::is_empty(path, ignored);
}

void convert(const ConvertFlags& f) {
  const bool to_gguf = f.out.ends_with(".gguf");
  std::optional<FormatId> format;
  if (!f.format.empty()) format = named_format(f.format, to_gguf);
  if (holds_something(f.out)) {
    if (!to_gguf) fail("the folder {} is not empty; name one that is not there yet", f.out);
    if (!f.force) fail("{} exists; give --force to replace it", f.out);
  }
  const Checkpoint checkpoint = open_checkpoint(f.in);
  Progress progress("converting " + checkpoint.name);
  const auto update = [&](double share) { progress.update(share); };
  const ConvertReport report = to_gguf ? convert_to_gguf(checkpoint, f.out, format ? std::optional(QuantizeOptions{.format = *format}) : std::nullopt, update)
                                       : convert_to_folder(checkpoint, f.out, format, update);
  progress.finish();
  fmt::print("{}: {} tensors, {}{}\n", f.out, report.n_tensors - report.left_out.size(), human_bytes(double(report.bytes)), to_gguf ? fmt::format(", architecture {}", report.architecture) : "");
  if (!report.left_out.empty())
    fmt::print("left out, since llama.cpp has no place for them: {}{}\n", fmt::join(report.left_out.begin(), report.left_out.begin() + std::min<ptrdiff_t>(4, ptrdiff_t(report.left_out.size())), ", "),
               report.left_out.size() > 4 ? fmt::format(" and {} more", report.left_out.size() - 4) : "");
  for (const std::string& d : report.differences) fmt::print("note: {}; Ridgeline reads the configuration that goes along, llama.cpp will compute something else\n", d);
}

}  // namespace

void add_convert(CLI::App& app) {
  auto* sub = app.add_subcommand("convert", "Safetensors to GGUF and back");
  auto f = std::make_shared<ConvertFlags>();
  sub->add_option("in", f->in, "The model: a folder, a .gguf file, or a name")->required();
  sub->add_option("out", f->out, "What to write: a .gguf file, or a folder for config.json and model.safetensors")->required();
  sub->add_option("--format", f->format, "Format of the matrices; where not given they keep theirs (blocks become bf16 in a folder)");
  sub->add_flag("--force", f->force, "Replace an existing file");
  sub->footer(R"(
A GGUF file has llama.cpp's names, layouts and keys, and the tokenizer both as llama.cpp reads it and as it was. `ridge quantize` has more to say about formats.

Examples:
  ridge convert ./Qwen3-0.6B qwen3.gguf
  ridge convert ./Qwen3-0.6B qwen3-q8.gguf --format q8_0
  ridge convert ./model-Q4_K_M.gguf ./model --format bf16)");
  sub->callback([f] { convert(*f); });
}

}  // namespace ridge
