#include "eval/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "eval/logits.h"

namespace ridge {
namespace {

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x) - largest);
  return largest + std::log(sum) - logits[token];
}

struct Window {
  std::span<const int32_t> ids;
  std::vector<double> nats;                  // by position of the row: summed in order at the end, whatever the order of the steps
};

}  // namespace

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

  std::unordered_map<uint64_t, Window> open;
  const SinkScope scope(engine, [&](uint64_t id, int position, std::span<const float> row) {
    Window& window = open.at(id);
    if (size_t(position) + 1 < window.ids.size()) window.nats[position] = negative_log_likelihood(row, window.ids[position + 1]);
  });
  Perplexity result{.n_left_out = int64_t(ids.size() - n_windows * context)};
  double sum = 0, sum_of_squares = 0;
  size_t next = 0;
  std::vector<double> by_window(n_windows);
  std::unordered_map<uint64_t, size_t> index_of;
  while (result.n_windows < int(n_windows)) {
    while (next < n_windows && int(open.size()) < engine.options().max_seqs) {
      Window window{ids.subspan(next * context, context), std::vector<double>(context - 1)};
      Request request{.prompt = {window.ids.begin(), window.ids.end()}, .wants_all_logits = true};
      request.params.max_tokens = 0;
      const uint64_t id = engine.submit(std::move(request));
      open.emplace(id, std::move(window));
      index_of[id] = next++;
    }
    for (const Event& event : engine.step()) {
      if (event.finish == FinishReason::none) continue;
      if (event.finish != FinishReason::length) fail("window {} ended early: {}", index_of.at(event.id), event.error.empty() ? "no KV memory left" : event.error);
      double nats = 0;
      for (const double x : open.at(event.id).nats) nats += x;
      if (!std::isfinite(nats)) fail("window {} has no finite likelihood: the model's weights are damaged, or a number overflowed on the way", index_of.at(event.id));
      by_window[index_of.at(event.id)] = nats;
      sum += nats;
      open.erase(event.id);
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
