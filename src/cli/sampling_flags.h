// The flags that say how the next token is chosen, spelled as people know them. What is not given comes from the model's generation_config.json.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "sequence/sampling_params.h"
#include "text/tokenizer.h"

namespace ridge {

struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p, typical_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<float> top_n_sigma, xtc_probability, xtc_threshold, dynatemp_range, dynatemp_exponent, mirostat_tau, mirostat_eta, dry_multiplier, dry_base;
  std::optional<int> top_k, n_predict, repeat_last_n, mirostat, dry_allowed_length, dry_penalty_last_n;
  std::vector<std::string> dry_breakers;     // empty: the usual ones; "none": none
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

void add_sampling_flags(CLI::App& command, SamplingFlags& flags);

// Throws Error naming a value out of range.
SamplingParams sampling_params(const SamplingFlags& flags, const Json& generation_config, const Tokenizer& tokenizer);

// One parameter by the name its flag has ("temp", "top-k", ...), for /set. Throws Error naming the parameters there are.
void set_sampling(SamplingParams& params, const std::string& name, const std::string& value);
std::string describe_sampling(const SamplingParams& params);          // "temp 0.2, top-p 0.9, seed random"

}  // namespace ridge
