// Metadata of a GGUF file as a config.json, and a config.json as metadata, along the rows of gguf/architecture.h.
#pragma once
#include "files/gguf/architecture.h"
#include "files/gguf/rope.h"
#include "files/gguf_names.h"

namespace ridge {

// Throws Error naming file and key when a value that every model needs is missing. `has_output`: there is an output.weight.
Json config_from_gguf(const GgufFile& file, const GgufArchitecture& a, const GgufRopeFactors& rope, int64_t n_vocab_rows, bool has_output);

std::vector<GgufPair> gguf_from_config(const Json& config, const GgufArchitecture& a);

// What llama.cpp will take to be otherwise than the configuration says ("norm_topk_prob is false, llama.cpp takes it to be true"): it knows some keys by heart, and
// the metadata of `file`, written from `config`, has no place for others. Ridgeline reads the configuration itself, which a file of ours carries whole.
std::vector<std::string> differences_for_llama_cpp(const Json& config, const GgufArchitecture& a, const GgufFile& file);

}  // namespace ridge
