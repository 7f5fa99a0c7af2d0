// What `ridge bench` measures, and the measuring: prompts of p tokens and answers of n tokens, after d tokens of context, for b sequences at once.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace ridge {

struct BenchTest {
  enum class Kind { prefill, decode } kind;
  int n_tokens, depth, batch, n_threads;
  SamplingParams sampling = {.temperature = 0};        // of answers
  std::string name() const;                            // "pp512", "tg128 @ d1024", "tg128 x 4", "tg128 temp 1 top-p 0.9"
};

struct BenchResult {
  BenchTest test;
  std::vector<double> seconds;                         // one per repetition
  int64_t n_tokens = 0;                                // of all sequences together, per repetition
  double bytes_per_step = 0;                           // moved by the timed steps, by the ledger
  int64_t n_steps = 0;                                 // timed, per repetition
  double read_bandwidth = 0;                           // measured around it, best
  double mean_speed() const, best_speed() const, spread() const;       // tokens/s; the spread is a standard deviation
  double bytes_per_second() const;                     // at the best speed
};

// One repetition. Throws Error when the engine's context or KV memory is too small for the test.
void run_once(Engine& engine, const BenchTest& test, BenchResult& into);

// Bytes of KV that `batch` sequences of n_tokens need, from a config; a little more than exact.
int64_t kv_bytes_needed(const Json& config, int64_t n_tokens, int batch, FormatId kv_format);

}  // namespace ridge
