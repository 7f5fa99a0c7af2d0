// Logits of given tokens and of a greedy continuation, as `ridge eval logits` writes them and the golden checks compare them.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace ridge {

struct LogitsResult {
  int n_vocab = 0;
  std::vector<float> logits;                 // [T, V]: row t is computed from tokens [0, t] with T known
  std::vector<int64_t> greedy;               // [N]
  std::vector<float> greedy_logits;          // [N, V]: row i is what greedy[i] was chosen from
};

// An engine for scoring: rows of logits for whole chunks, f32 activations and KV, angles that follow every token.
EngineOptions exact_options(EngineOptions options, int max_context);
// The same with activations and KV as `options` have them.
EngineOptions logits_options(EngineOptions options, int max_context);

// Runs all prompts together. `between_steps` (may be empty) sees the ids after each step: tests preempt there. Throws Error when a sequence fails.
using BetweenSteps = std::function<void(Engine& engine, const std::vector<uint64_t>& ids)>;
std::vector<LogitsResult> compute_logits(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, int n_greedy, const BetweenSteps& between_steps = {});

// The engine's logits sink for as long as this lives: a sink refers to its maker's variables, which an exception takes away.
class SinkScope {
 public:
  SinkScope(Engine& engine, Engine::LogitsSink sink) : engine_(engine) { engine_.set_logits_sink(std::move(sink)); }
  ~SinkScope() { engine_.set_logits_sink({}); }
  SinkScope(const SinkScope&) = delete;
  SinkScope& operator=(const SinkScope&) = delete;

 private:
  Engine& engine_;
};

// A JSON list of token ids.
std::vector<int32_t> read_ids(const std::string& path);
void write_logits(const std::string& path, const LogitsResult& result);

}  // namespace ridge
