// Writes GGUF v3 (layout: gguf.h): metadata, tensor descriptions, then the tensors' bytes, each at a multiple of 32. Nothing partial is left after an error.
#pragma once
#include "files/gguf_config.h"
#include "files/tensor_source.h"

namespace ridge {

using WriteProgress = std::function<void(uint64_t done, uint64_t total)>;

// Names and metadata as given; scales other than 1 are not written (write_gguf_model does that).
void write_gguf(const std::string& path, const std::vector<GgufPair>& metadata, const std::vector<TensorSource>& tensors, const WriteProgress& progress = {});

// A model under Hugging Face's names, as llama.cpp expects it: names, config and tensors translated (gguf/tensors.h), rope factors as tensors, "X.scale" beside an
// nvfp4 "X.weight". The config is kept whole in `ridge.config` as well, for what GGUF has no key for. `metadata` (a tokenizer: gguf_tokenizer.h; general.name) is
// added; with no tokenizer in it the file says it has none, which llama.cpp accepts. llama.cpp refuses files with tensors it does not know (`mtp.*`), Ridgeline does
// not mind them: with `left_out` they are left out, and named there.
void write_gguf_model(const std::string& path, const Json& config, const std::vector<GgufPair>& metadata, const std::vector<TensorSource>& tensors,
                      const WriteProgress& progress = {}, std::vector<std::string>* left_out = nullptr);

}  // namespace ridge
