// The tensors of a GGUF file (or of its numbered splits) as a WeightFile: Hugging Face's names, and what llama.cpp's converter changed in the tensors undone.
// Nearly all are views of the mapping, a stack of experts as one view for each; what is not (rows in another order, two tensors in one) is a copy made when asked for.
#pragma once
#include "files/gguf.h"
#include "files/gguf_config.h"
#include "files/weight_file.h"

namespace ridge {

// `model-00001-of-00003.gguf` brings its siblings; any other file is alone.
std::vector<std::shared_ptr<const GgufFile>> open_gguf_splits(const std::string& path);

struct GgufModel {
  Json config;
  std::unique_ptr<WeightFile> weights;
};
// Throws Error when general.architecture is not in the table of gguf_names.
GgufModel open_gguf_model(const std::vector<std::shared_ptr<const GgufFile>>& files);

}  // namespace ridge
