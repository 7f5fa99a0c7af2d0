#include "cli/model_flags.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "cpu/cpu_backend.h"

namespace ridge {
namespace {

constexpr const char* kGroup = "How it runs";

void check_one_of(const char* flag, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) == known.end()) fail("{} {}: not known; use {}", flag, value, fmt::join(known, ", "));
}

}  // namespace

std::optional<FormatId> format_called(const std::string& name) { return find_format(name == "fp8" ? "fp8_e4m3" : name); }

void add_kv_flag(CLI::App& command, std::string& kv_format) {
  command.add_option("--kv-cache-dtype", kv_format, "Type of the key-value cache: auto, f32, f16, bf16 or fp8 (e4m3 with a scale for each token and head)")->capture_default_str()->group(kGroup);
}

FormatId kv_format_of(const std::string& value) {
  check_one_of("--kv-cache-dtype", value, {"auto", "f32", "f16", "bf16", "fp8", "fp8_e4m3"});
  return value == "auto" ? FormatId::unknown : format_called(value).value();
}

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command.add_option("-t,--threads", flags.n_threads, "Threads; 0: one per core")->check(CLI::Range(0, 1024))->group(kGroup);
  command.add_option("-c,--ctx-size", flags.ctx_size, "Tokens of context, prompt and answer together; 0: what the model was made for")->check(CLI::NonNegativeNumber)->group(kGroup);
  command.add_option("--device", flags.device, "auto (a GPU where there is one), cuda, cpu, or ref (slow and simple: the reference)")->capture_default_str()->group(kGroup);
  command.add_option("--isa", flags.isa, "Instruction set of the CPU; see `ridge doctor` for those it has")->group(kGroup);
  command.add_option("--activations", flags.activations, "For quantized weights. i8: quantized to 8 bits; i16: to 16, finer and slower; f32: exact and slowest; auto: i16 for small models, else i8")->capture_default_str()->group(kGroup);
  add_kv_flag(command, flags.kv_format);
  command.add_option("--rope-dynamic", flags.rope_dynamic, "Dynamic NTK: `class` follows the length in powers of two, `exact` every token")->capture_default_str()->group(kGroup);
  // By a function: bound to it, CLI11 2.1 makes an optional false where the flag is not given.
  command.add_flag_function("--async-scheduling,!--no-async-scheduling", [&flags](int64_t n) { flags.run_ahead = n > 0; },
                            "Submit a step before the one before it is done, where it is sure to be wanted; by default on a GPU alone")->group(kGroup);
}

EngineOptions engine_options(const ModelFlags& flags) {
  check_one_of("--device", flags.device, {"auto", "cuda", "cpu", "ref"});
  check_one_of("--activations", flags.activations, {"auto", "i8", "i16", "f32"});
  check_one_of("--rope-dynamic", flags.rope_dynamic, {"class", "exact"});
  if (!flags.isa.empty()) check_one_of("--isa", flags.isa, available_isas());
  EngineOptions options;
  options.device = flags.device;
  options.isa = flags.isa;
  options.n_threads = flags.n_threads;
  if (flags.activations != "auto") options.activations = *find_format(flags.activations);
  options.kv_format = kv_format_of(flags.kv_format);
  options.max_context = flags.ctx_size;
  options.rope_dynamic_exact = flags.rope_dynamic == "exact";
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");               // CUDA's own switch, which its users know
  options.blocking_launches = blocking && *blocking && std::string_view(blocking) != "0";
  options.run_ahead = flags.run_ahead;
  return options;
}

}  // namespace ridge
