// The part of `ridge inspect` that says what a decoded token costs, and what `--list` prints.
#pragma once
#include <string_view>

#include "base/json.h"
#include "plan/token_cost.h"

namespace ridge {

void print_cost(const TokenCost& cost, std::string_view kv_format);
Json json_of(const TokenCost& cost);

// Families, formats, rope variants and KV policies.
void print_known();
Json known_as_json();

}  // namespace ridge
