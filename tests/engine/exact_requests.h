// Requests and options of tests that compare tokens: the reference backend, greedy, of a given length.
#pragma once
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace ridge {

inline EngineOptions exact() {
  EngineOptions options{.device = "ref"};
  options.activations = FormatId::f32;
  options.max_context = 256;
  return options;
}

inline Request greedy(std::vector<int32_t> prompt, int max_tokens) {
  Request request{.prompt = std::move(prompt)};
  request.params.temperature = 0;
  request.params.ignore_eos = true;
  request.params.max_tokens = max_tokens;
  return request;
}

}  // namespace ridge
