// generation_config.json as sampling parameters: what the model's makers recommend, and what a request that says nothing gets.
#pragma once
#include "base/json.h"
#include "sequence/sampling_params.h"

namespace ridge {

// Keys that are absent or null keep the neutral value. Hugging Face's rule decides about sampling: without do_sample = true the answer is greedy, but a
// temperature alone counts as a wish to sample. Throws Error naming a key whose value is no number or out of range.
SamplingParams defaults_from(const Json& generation_config);

}  // namespace ridge
