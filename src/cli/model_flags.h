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
// Throws Error naming a flag whose value is unknown and the values there are. Progress is left to the caller.
EngineOptions engine_options(const ModelFlags& flags);

}  // namespace ridge
