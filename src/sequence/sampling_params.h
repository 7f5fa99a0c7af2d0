// How the next token is chosen: names and meanings as vLLM and llama.cpp have them. Neutral values switch a step off.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/step.h"

namespace ridge {

struct SequenceBreakers;                     // text/sequence_breakers.h

struct SamplingParams {
  float temperature = 1.0f;                  // 0: greedy
  float dynatemp_range = 0.0f, dynatemp_exponent = 1.0f;      // temperature - range to temperature + range, by the entropy of what the cuts left; range 0: off
  int top_k = 0;                             // 0: off
  float top_p = 1.0f, min_p = 0.0f, typical_p = 1.0f;
  float top_n_sigma = -1.0f;                 // only logits within n standard deviations of the largest; 0 or less: off
  float xtc_probability = 0.0f, xtc_threshold = 0.1f;         // this often, of the tokens over the threshold only the least likely stays; 0: off
  int mirostat = 0;                          // 1 or 2: the version, instead of every other cut; 0: off
  float mirostat_tau = 5.0f, mirostat_eta = 0.1f;             // the surprise to aim at, in bits, and how fast
  float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  int penalty_last_n = -1;                   // tokens the repetition penalty looks back at; -1: all
  // DRY: a token that would continue a repetition of n >= allowed_length tokens loses multiplier * base^(n - allowed_length). 0: off.
  float dry_multiplier = 0.0f, dry_base = 1.75f;
  int dry_allowed_length = 2, dry_penalty_last_n = -1;
  std::shared_ptr<const SequenceBreakers> dry_breakers;       // what no repetition reaches across; may be null
  std::unordered_map<int32_t, float> logit_bias;
  std::optional<uint64_t> seed;              // none: a random one is drawn and reported
  int max_tokens = -1;                       // -1: until the context is full
  int min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;             // strings that end the answer (not part of it)
  std::vector<int32_t> stop_token_ids;
  int n_logprobs = -1;                       // -1: none; 0: the chosen token's; k: the k likeliest beside it

  bool greedy() const { return temperature <= 0.0f || (top_k == 1 && mirostat == 0); }
  Penalties penalties() const;               // without the tokens they count
  bool changes_logits() const { return !logit_bias.empty() || penalties().any(); }      // in a way that a device can, too (step.h)
  void validate() const;                     // throws Error naming the field, the value and the allowed range
};

}  // namespace ridge
