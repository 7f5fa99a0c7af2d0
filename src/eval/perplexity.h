// Perplexity of a text: exp of the mean negative log-likelihood over windows of `context` tokens that do not overlap, every token but the first of a window
// scored. No special tokens are added. Windows run together as sequences of a batch; the result does not depend on how many.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "engine/engine.h"

namespace ridge {

struct PerplexityOptions {
  int context = 1024;
  int max_windows = 0;                       // 0: all
  std::function<void(int n_done, int n_windows, double perplexity_so_far)> progress;
};

struct Perplexity {
  double perplexity = 0, nats_per_token = 0;
  double standard_error = 0;                 // of nats_per_token, over windows
  int n_windows = 0;
  int64_t n_scored = 0;
  int64_t n_left_out = 0;                    // tokens after the last window
  double seconds = 0;
};

// The options of an engine that scores windows of `context` tokens: everything else as given.
EngineOptions scoring_options(EngineOptions options, int context);

// A text shorter than one window is one window; otherwise a rest shorter than a window is left out. Throws Error for a text of fewer than two tokens.
Perplexity measure_perplexity(Engine& engine, std::span<const int32_t> ids, const PerplexityOptions& options);

}  // namespace ridge
