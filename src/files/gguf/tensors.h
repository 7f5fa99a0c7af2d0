// Tensors under Hugging Face's names as llama.cpp's files have them: renamed, changed by the lines of the architecture's table, experts stacked, what llama.cpp
// computes in f32 as f32.
#pragma once
#include "files/gguf/architecture.h"
#include "files/tensor_source.h"

namespace ridge {

// With `left_out`, tensors that llama.cpp has no place for (and refuses a file for) are left out and named there; without, they are kept under their names.
std::vector<TensorSource> gguf_tensors(const GgufArchitecture& a, const Json& config, const std::vector<TensorSource>& tensors, std::vector<std::string>* left_out);

}  // namespace ridge
