// Hugging Face's JSON files, brought to one spelling: config.json (old and new ways to write the rope section, language models inside multimodal ones),
// tokenizer_config.json (templates and special tokens in their several shapes), and where ids that end an answer are written.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"

namespace ridge {

// - text_config (language_config, llm_config) is lifted to the top level
// - rope_parameters is always there: {rope_type, rope_theta, ...} (rope_theta where the config has one), or one such object per layer type; `type`, `rope_scaling`, `rope_theta`,
//   `rope_local_base_freq` and `partial_rotary_factor` are moved into it
// - torch_dtype becomes dtype
Json normalize_config(Json config, const std::string& file);

// Null, "text" or {"content": "text"}; anything else is empty.
std::string token_text(const Json& object, std::string_view key);

// The default chat template of a tokenizer_config.json: a string, or the one named "default" of a list.
std::string template_of(const Json& tokenizer_config);

// An id or a list of ids under `key`, appended without duplicates.
void append_ids(std::vector<int32_t>& ids, const Json& object, std::string_view key);

// Python writes Infinity, -Infinity and NaN into JSON files, which JSON does not have: each becomes {"__float__": "Infinity"}, as newer files spell it.
std::string without_python_floats(std::string_view text);

}  // namespace ridge
