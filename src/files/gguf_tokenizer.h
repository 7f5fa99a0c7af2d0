// The tokenizer of a checkpoint as GGUF metadata, so that llama.cpp can use a file we write: copied from a GGUF source, made from a tokenizer.json otherwise.
// tokenizer.json itself goes along (tokenizer.huggingface.json, a key of the GGUF specification), and is what Ridgeline reads back.
#pragma once
#include "files/checkpoint.h"
#include "files/gguf_config.h"

namespace ridge {

std::vector<GgufPair> tokenizer_metadata(const Checkpoint& checkpoint);

}  // namespace ridge
