// The flags that say how a model runs, shared by the commands that run one.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "engine/engine.h"

namespace ridge {

struct ModelFlags {
  std::string device = "auto", isa, activations = "auto", kv_format = "auto", rope_dynamic = "class";
  int n_threads = 0, ctx_size = 0;
  std::optional<bool> run_ahead;
};

void add_model_flags(CLI::App& command, ModelFlags& flags);
// --kv-cache-dtype alone, and what its value stands for: unknown for auto. Throws Error naming the values there are.
void add_kv_flag(CLI::App& command, std::string& kv_format);
FormatId kv_format_of(const std::string& value);
// A format as users name it: "fp8" is fp8_e4m3, the rest are the formats' own names.
std::optional<FormatId> format_called(const std::string& name);
// Throws Error naming a flag whose value is unknown and the values there are. Progress is left to the caller.
EngineOptions engine_options(const ModelFlags& flags);

}  // namespace ridge
