// A Sequence: a request as the engine sees it. It has tokens and a count of those computed; prefill, decode, and recomputation after preemption are all
// "catch up within this step's token budget".
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "kv/cache.h"
#include "sequence/sampling_params.h"

namespace ridge {

enum class SeqState : uint8_t { waiting, running, finished };
enum class FinishReason : uint8_t { none, stop, length, context, cancelled, error };

struct TokenLogprob { int32_t token; float logprob; };
struct Sampled {
  int32_t token;
  float logprob = 0;                         // of the chosen token, under the model's own distribution (before temperature and cuts)
  std::vector<TokenLogprob> top;             // n_logprobs likeliest
};

struct Sequence {
  uint64_t id = 0;
  std::vector<int32_t> tokens;               // prompt, then what was sampled
  int n_prompt = 0;
  SamplingParams params;
  uint64_t seed = 0;                         // resolved
  int slot = -1;                             // while running
  SeqState state = SeqState::waiting;
  FinishReason finish = FinishReason::none;
  Track track;
  bool wants_all_logits = false;             // every row's logits (perplexity, `eval logits`), not the last one's alone
  int n_preempted = 0;
  std::chrono::steady_clock::time_point arrived, first_token, finished;

  int n_known() const { return int(tokens.size()); }
  int n_generated() const { return n_known() - n_prompt; }
  int n_to_compute() const { return n_known() - track.n_computed; }
};

}  // namespace ridge
