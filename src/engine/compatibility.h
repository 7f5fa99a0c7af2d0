// Which features combine: one table, checked when an engine is made and printed by `ridge inspect --compat`.
#pragma once
#include <string>
#include <vector>

#include "engine/options.h"
#include "model/model.h"

namespace ridge {

struct Combination {
  std::string device;
  FormatId activations, kv_format;
  bool works;
  std::string note;                          // why not, and what to use instead; or what to know
};

std::vector<Combination> compatibility_table();

// The KV format that `unknown` stands for.
FormatId resolve_kv_format(const EngineOptions& options);

// How a model multiplies its quantized weights, in words: "i8", "i16 (auto)".
std::string activations_text(FormatId asked_for, const Model& model);

// Throws Error naming the combination and what would work.
void check_compatibility(const EngineOptions& options);

}  // namespace ridge
