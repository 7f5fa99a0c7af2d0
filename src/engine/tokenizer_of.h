// The tokenizer that belongs to a checkpoint: its tokenizer.json, or the vocabulary inside its GGUF file. Here meet `files` and `text`, which do not know each other.
#pragma once
#include <memory>

#include "files/checkpoint.h"
#include "text/tokenizer.h"

namespace ridge {

GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata, std::string_view what);
std::unique_ptr<Tokenizer> make_tokenizer(const Checkpoint& checkpoint);      // throws Error when there is none

}  // namespace ridge
