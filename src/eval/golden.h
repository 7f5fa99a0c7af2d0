// A golden case is a folder with a checkpoint and golden.safetensors: `prompt` [T], `logits` [T, V], `greedy` [G], `greedy_logits` [G, V], computed by a
// trusted implementation in f32. A check runs it exactly (f32 activations and KV) and in one of the ways in which a request may be served; all of them must
// give not only the golden tokens but the very bits of the plain way.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace ridge {

enum class GoldenMode {
  plain,                                     // the prompt in one step
  chunked,                                   // 7 tokens a step
  batched,                                   // eight sequences with different prompts together, each compared with itself alone
  preempted,                                 // thrown out at random moments and recomputed
};
inline constexpr GoldenMode kGoldenModes[] = {GoldenMode::plain, GoldenMode::chunked, GoldenMode::batched, GoldenMode::preempted};
std::string_view name_of(GoldenMode mode);

struct GoldenReport {
  double difference = 0;                     // largest, of `logits`
  double greedy_difference = 0;              // largest, of `greedy_logits`
  double drift = 0;                          // largest difference to the plain way on the same device: 0 when the promise holds
  int n_greedy = 0, n_agree = 0;             // tokens of the continuation, and those equal from the beginning on
  bool same_tokens = true;                   // as the plain way, all sequences
  int n_preemptions = 0;
  int n_rope_restarts = 0;
  bool passed(double tolerance = 2e-3) const { return difference < tolerance && n_agree == n_greedy && same_tokens && drift == 0; }
};

// `options`: device, ISA, threads and page size; the rest is the check's. Throws Error when the folder is not a golden case or the model cannot be loaded.
GoldenReport check_golden(const std::string& folder, GoldenMode mode, EngineOptions options = {});

// The same case in the arithmetic that serves requests (on a GPU 16-bit activations and KV), which rounds otherwise than f32, as a trusted implementation in bf16 does too:
// held to that one's own differences, and to the golden tokens wherever they lead by more than rounding can turn.
inline constexpr double kServedFactor = 1.5, kServedMargin = 0.25;
struct ServedReport {
  double difference = 0;                     // largest, of `logits` and, behind the golden tokens, `greedy_logits`
  int n_rows = 0, n_decided = 0, n_agree = 0;  // rows of logits; those whose first leads the second by kServedMargin; of these, with the same first
  bool passed(double reference) const { return difference <= kServedFactor * reference && n_agree == n_decided; }
};
ServedReport check_golden_as_served(const std::string& folder, EngineOptions options = {});

// The golden cases below a folder, sorted; the folder itself when it is one. Empty when there is none.
std::vector<std::string> find_golden_cases(const std::string& folder);

}  // namespace ridge
