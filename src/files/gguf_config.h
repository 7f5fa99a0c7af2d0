// Metadata of a GGUF file as a config.json, and a config.json as metadata; the table is in gguf_config.cpp.
#pragma once
#include "files/gguf.h"
#include "files/gguf_names.h"

namespace ridge {

// `lone_values`: tensors that stand for keys of config.json (rope_freqs, rope_factors_long, rope_factors_short), empty when absent.
struct GgufRopeFactors {
  std::vector<float> freqs, long_factor, short_factor;
};

// Throws Error naming file and key when a value that every model needs is missing. `has_output`: there is an output.weight.
Json config_from_gguf(const GgufFile& file, const GgufArchitecture& a, const GgufRopeFactors& rope, int64_t n_vocab_rows, bool has_output);

// A metadata value to be written: string, bool, u32, f32, or a list of strings, i32 or f32.
struct GgufPair {
  std::string key;
  Json value;                               // a whole number becomes u32, a fraction f32; lists by their first element (numbers: i32)
};
std::vector<GgufPair> gguf_from_config(const Json& config, const GgufArchitecture& a);
GgufRopeFactors rope_factors_from_config(const Json& config);

// llama3's division of each frequency, as llama.cpp stores it in rope_freqs.weight.
std::vector<float> llama3_rope_factors(double theta, int64_t head_dim, double factor, double low, double high, double original_context);

}  // namespace ridge
