// `ridge quantize`: a checkpoint in fewer bits, as GGUF.
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "quantize/quantizer.h"

namespace ridge {
namespace {

struct QuantizeFlags { std::string in, out, format, embedding, keep; bool force = false; };

FormatId writable_format(const char* flag, const std::string& name) {
  const auto id = find_format(name);
  if (id && format(*id).writable) return *id;
  std::string known;
  for (const Format& f : all_formats())
    if (f.writable) known += (known.empty() ? "" : ", ") + std::string(f.name);
  fail("{} {}: not a format that can be written; there are {}", flag, name, known);
}

std::string joined(const std::map<std::string, int>& formats) {
  std::string text;
  for (const auto& [name, n] : formats) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void quantize(const QuantizeFlags& f) {
  QuantizeOptions options{.format = writable_format("--format", f.format), .keep = f.keep};
  if (!f.embedding.empty()) options.embedding = writable_format("--embedding", f.embedding);
  if (!f.out.ends_with(".gguf")) fail("the output '{}' must end in .gguf: that is the format written", f.out);
  if (std::filesystem::exists(f.out) && !f.force) fail("{} exists; give --force to replace it", f.out);
  const Checkpoint checkpoint = open_checkpoint(f.in);
  Progress progress("quantizing " + checkpoint.name);
  options.progress = [&](double share) { progress.update(share); };
  const QuantizeReport report = quantize_to_gguf(checkpoint, f.out, options);
  progress.finish();

  Table table({{"component"}, {"tensors", true}, {"parameters", true}, {"before", true}, {"after", true}, {"bits", true}, {"error", true}, {"format"}});
  const auto add = [&](const ComponentError& c) {
    table.add({c.component, std::to_string(c.n_tensors), human_count(double(c.n_params)), human_bytes(double(c.bytes_before)), human_bytes(double(c.bytes_after)),
               fmt::format("{:.2f}", 8.0 * double(c.bytes_after) / double(std::max<int64_t>(c.n_params, 1))),
               c.squared_sum > 0 ? fmt::format("{:.2f} %", 100 * c.relative_error()) : "-", joined(c.formats)});
  };
  for (const ComponentError& c : report.components()) add(c);
  add(report.total());
  fmt::print("{}\n{}: {}\n", table.aligned(), f.out, human_bytes(double(std::filesystem::file_size(f.out))));
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto* sub = app.add_subcommand("quantize", "Make a model smaller: fewer bits per weight, as GGUF");
  auto f = std::make_shared<QuantizeFlags>();
  sub->add_option("in", f->in, "The model: a folder, a .gguf file, or a name")->required();
  sub->add_option("out", f->out, "The .gguf file to write")->required();
  sub->add_option("--format", f->format, "nvfp4 (4.5 bits), q4_0 (4.5), q8_0 (8.5), q4_1, q6_k, bf16, f16 or f32")->required();
  sub->add_option("--embedding", f->embedding, "Format of the embedding and the output head; where not given q8_0 beside a format of four bits");
  sub->add_option("--keep", f->keep, "Tensors whose name matches this regular expression keep their format");
  sub->add_flag("--force", f->force, "Replace an existing file");
  sub->footer(R"(
The error is the root of the summed squared differences over the summed squares: 9 % is usual for four bits, 0.5 % for eight.

Examples:
  ridge quantize ./Qwen3-0.6B qwen3-q8.gguf --format q8_0
  ridge quantize ./Qwen3-0.6B qwen3-fp4.gguf --format nvfp4 --embedding q8_0 --keep 'down_proj')");
  sub->callback([f] { quantize(*f); });
}

}  // namespace ridge
