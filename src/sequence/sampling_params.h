// How the next token is chosen: names and meanings as vLLM and llama.cpp have them. Neutral values switch a step off.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ridge {

struct SamplingParams {
  float temperature = 1.0f;                  // 0: greedy
  int top_k = 0;                             // 0: off
  float top_p = 1.0f, min_p = 0.0f, typical_p = 1.0f;
  float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  int penalty_last_n = -1;                   // tokens the repetition penalty looks back at; -1: all
  std::unordered_map<int32_t, float> logit_bias;
  std::optional<uint64_t> seed;              // none: a random one is drawn and reported
  int max_tokens = -1;                       // -1: until the context is full
  int min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;             // strings that end the answer (not part of it)
  std::vector<int32_t> stop_token_ids;
  int n_logprobs = -1;                       // -1: none; 0: the chosen token's; k: the k likeliest beside it

  void validate() const;                     // throws Error naming the field, the value and the allowed range
};

}  // namespace ridge
