// How much memory goes to KV and how long a sequence may then get: decided once, before any of it is allocated.
#pragma once
#include <cstdint>

#include "engine/options.h"
#include "model/model.h"

namespace ridge {

struct KvBudget {
  int max_context = 0;                       // of one sequence; it fits even when the others hold nothing
  int64_t bytes = 0;
};

// Throws Error when a context that was asked for does not fit, saying what would.
KvBudget plan_kv(const Model& model, const EngineOptions& options, int64_t free_bytes);

}  // namespace ridge
