// A model as found on disk: weights, configuration, tokenizer, chat template, generation defaults; from a folder, a .gguf file or the Hugging Face cache.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "files/gguf.h"
#include "files/hub_cache.h"
#include "files/weight_file.h"

namespace ridge {

struct Checkpoint {
  std::string path;                         // the folder or file it was found at
  std::string name;                         // for people: "smollm2", "Qwen/Qwen3-0.6B", "stories15m-Q8_0.gguf"
  Json config;                              // config.json, or the same made from GGUF metadata; the rope section always as `rope_parameters`
  Json generation_config;                   // an object, empty when there is none
  Json metadata;                            // GGUF metadata (arrays longer than 64 abbreviated) or safetensors __metadata__; for `ridge inspect --metadata`
  std::unique_ptr<WeightFile> weights;      // null when opened with weights = false and there are none
  std::shared_ptr<const GgufFile> gguf;     // the (first) GGUF file, whose metadata has the vocabulary; null for safetensors without a vocabulary.gguf
  std::string tokenizer_json;               // contents of tokenizer.json; empty for GGUF, unless the file carries it (tokenizer.huggingface.json)
  Json tokenizer_config;                    // an object
  std::string chat_template;                // source, empty when there is none
  std::string bos_token, eos_token;         // as text, for the template
  std::vector<int32_t> eos_ids;             // every id that ends an answer (generation_config, config, GGUF eos and eot)
  std::optional<int32_t> bos_id;
};

// `model`: a folder, a .gguf file, a name in our own cache (smollm2), or org/name in the Hugging Face cache. Throws Error with where it looked and how to get it.
Checkpoint open_checkpoint(const std::string& model, bool with_weights = true);
Checkpoint open_checkpoint(const std::string& model, const CacheFolders& folders, bool with_weights = true);

// True when `model` names something open_checkpoint would find: `ridge run X` uses it to tell a model from a prompt.
bool names_a_model(const std::string& model);
bool names_a_model(const std::string& model, const CacheFolders& folders);

}  // namespace ridge
