// A Sequence: a request as the engine sees it. It has tokens and a count of those computed; prefill, decode, and recomputation after preemption are all
// "catch up within this step's token budget".
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kv/cache.h"
#include "kv/prefix_place.h"
#include "sequence/sampling_params.h"
#include "sequence/token_counts.h"
#include "text/token_filter.h"

namespace ridge {

class Adapter;                               // model/adapter.h

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
  bool wants_embedding = false;
  int n_prompt_logprobs = -1;                // as SamplingParams::n_logprobs, for the prompt
  std::vector<Sampled> prompt_logprobs;      // those known: of prompt tokens 1, 2, ...
  std::shared_ptr<TokenFilter> filter;       // of what may come next; may be null
  std::shared_ptr<const Adapter> adapter;    // null: the base model
  float mirostat_mu = 0;
  TokenCounts counts;                        // of its tokens, where a device applies its penalties
  bool wants_its_logits = false;             // where its last row was largest did not decide on its next token: the row itself must be looked at
  int n_preempted = 0;
  int priority = 0;                          // smaller is served earlier, where the policy says so
  bool reuses_prefix = true;                 // false: every row of the prompt must be computed, whatever the prefix cache has
  PrefixPlace place;
  bool was_looked_up = false;                // in the prefix cache, and counted there
  int n_cached = 0;                          // tokens of the prompt that came from the prefix cache
  int n_overtaken = 0;                       // times that a later arrival was taken from the queue before this one
  uint64_t waits_for = 0;                    // while waiting: a running sequence that is computing what this one begins with,
  int n_awaited = 0;                         // and how many tokens of it are worth waiting for
  std::chrono::steady_clock::time_point scheduled;      // its first token was granted
  std::chrono::steady_clock::time_point arrived, first_token, finished;

  int n_known() const { return int(tokens.size()); }
  int n_generated() const { return n_known() - n_prompt; }
  int n_to_compute() const { return n_known() - track.n_computed; }
  // Rows that score the prompt: token i + 1 is scored by row i.
  int first_unscored() const { return n_prompt_logprobs < 0 ? n_prompt - 1 : int(prompt_logprobs.size()); }
  bool scores(int position) const { return position >= first_unscored() && position < n_prompt - 1; }
  bool asks_for_logits(int position) const { return wants_all_logits || position == n_known() - 1 || scores(position); }
  // Rows of logits that computing its next n tokens asks for.
  int n_logits_of(int n) const {
    if (wants_all_logits) return n;
    const int first = track.n_computed, last = first + n;
    return std::max(0, std::min(last, n_prompt - 1) - std::max(first, first_unscored())) + (last == n_known() ? 1 : 0);
  }
};

}  // namespace ridge
