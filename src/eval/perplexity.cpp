#include "eval/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace ridge {
EngineOptions scoring_options(EngineOptions options, int context) {
  options.max_context = context;
  options.max_seqs = std::min(options.max_seqs, 4);
  options.max_batch_tokens = options.max_batch_tokens == 0 ? 256 : std::min(options.max_batch_tokens, 256);
  options.max_logits = options.max_batch_tokens;
  return options;
}

Perplexity measure_perplexity(Engine& engine, std::span<const int32_t> ids, const PerplexityOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  if (options.context < 2) fail("context {}: a window needs at least 2 tokens", options.context);
  if (options.context > engine.max_context()) fail("context {}: the engine holds {} tokens of a sequence", options.context, engine.max_context());
  if (ids.size() < 2) fail("the text has {} tokens: at least 2 are needed", ids.size());
  const size_t context = std::min(ids.size(), size_t(options.context));
  size_t n_windows = ids.size() / context;
  if (options.max_windows > 0) n_windows = std::min(n_windows, size_t(options.max_windows));

  Perplexity result{.n_left_out = int64_t(ids.size() - n_windows * context)};
  double sum = 0, sum_of_squares = 0;
  size_t next = 0;
  std::vector<double> by_window(n_windows);
  std::unordered_map<uint64_t, size_t> index_of;
  while (result.n_windows < int(n_windows)) {
    for (; next < n_windows && int(index_of.size()) < engine.options().max_seqs; ++next) {
      const auto window = ids.subspan(next * context, context);
      Request request{.prompt = {window.begin(), window.end()}, .n_prompt_logprobs = 0};
      request.params.max_tokens = 0;
      index_of[engine.submit(std::move(request))] = next;
    }
    for (const Event& event : engine.step()) {
      if (event.finish == FinishReason::none) continue;
      const size_t window = index_of.extract(event.id).mapped();
      if (event.finish != FinishReason::length) fail("window {} ended early: {}", window, event.error.empty() ? "no KV memory left" : event.error);
      double nats = 0;
      for (const Sampled& token : event.prompt_logprobs) nats -= token.logprob;
      if (!std::isfinite(nats)) fail("window {} has no finite likelihood: the model's weights are damaged, or a number overflowed on the way", window);
      by_window[window] = nats;
      sum += nats;
      result.n_windows++;
      result.n_scored += int64_t(context) - 1;
      if (options.progress) options.progress(result.n_windows, int(n_windows), std::exp(sum / double(result.n_scored)));
    }
  }
  sum = 0;
  for (const double nats : by_window) {
    sum += nats;
    sum_of_squares += nats * nats;
  }
  const double n = double(n_windows), mean = sum / n;
  result.nats_per_token = sum / double(result.n_scored);
  result.perplexity = std::exp(result.nats_per_token);
  if (n_windows > 1) result.standard_error = std::sqrt(std::max(0.0, sum_of_squares / n - mean * mean) / (n - 1)) / double(context - 1);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace ridge
