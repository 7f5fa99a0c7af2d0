// What is asked of an engine, and what it answers, step by step.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sequence/sequence.h"
#include "text/token_filter.h"

namespace ridge {

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams params;
  bool wants_all_logits = false;             // every row goes to the logits sink; with max_tokens 0 the prompt is scored and nothing generated
  bool wants_embedding = false;              // with max_tokens 0: the last event carries the final hidden state of the prompt's last token
  int n_prompt_logprobs = -1;                // as n_logprobs, for every token of the prompt but the first
  std::shared_ptr<TokenFilter> filter;       // may be null; the engine's alone from now on
  std::string adapter;                       // a loaded adapter's name; empty: the base model
  std::string cache_salt;                    // a prefix is shared only between requests of one salt
  int priority = 0;                          // with the policy `priority`: smaller is served earlier
  std::string user;                          // whose concurrency limit counts; empty: nobody's
};

using TimePoint = std::chrono::steady_clock::time_point;
struct RequestTiming {
  TimePoint arrived, scheduled, first_token, finished;      // scheduled: its first token was granted
  int n_prompt = 0, n_cached = 0, n_generated = 0, n_preempted = 0;
};

// What a step did for one sequence. A sequence's last event has a finish reason; nothing is known of it afterwards.
struct Event {
  uint64_t id;
  std::vector<Sampled> sampled;              // new tokens, usually one; a token that stopped the sequence is the last of them
  FinishReason finish = FinishReason::none;
  int32_t stop_token = -1;                   // with `stop`: the eos or stop token that ended it, last of `sampled` and no part of the text; -1: the filter was done
  std::string error;                         // with FinishReason::error
  std::vector<Sampled> prompt_logprobs;      // where asked for: with the first token, or with the end; of prompt tokens 1, 2, ...
  std::vector<float> embedding;              // with the last event, where asked for
  RequestTiming timing;                      // n_cached from the first sampled token on; whole in the last event
};

}  // namespace ridge
