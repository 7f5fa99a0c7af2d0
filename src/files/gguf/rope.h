// The rope section of a configuration as GGUF metadata and tensors of factors, and back.
#pragma once
#include "files/gguf/architecture.h"

namespace ridge {

// Tensors that stand for keys of config.json (rope_freqs, rope_factors_long, rope_factors_short), empty when absent.
struct GgufRopeFactors {
  std::vector<float> freqs, long_factor, short_factor;
};

// {rope_type, rope_theta, ...}; `config` has the head's width and the context.
Json rope_section(const GgufKeys& keys, const Json& config, const GgufRopeFactors& factors);

void write_rope(const Json& config, int64_t head_dim, GgufPairs& pairs);
GgufRopeFactors rope_factors_from_config(const Json& config);

// llama3's division of each frequency, as llama.cpp stores it in rope_freqs.weight.
std::vector<float> llama3_rope_factors(double theta, int64_t head_dim, double factor, double low, double high, double original_context);

}  // namespace ridge
