// Writes a safetensors file: the header first (all offsets are known beforehand), then tensor after tensor, row by row. Nothing partial is left after an error.
#pragma once
#include "files/tensor_source.h"

namespace ridge {

// `metadata`: an object of strings, or empty. Formats in blocks have no safetensors dtype and are refused; so is a scale other than 1.
// `progress` is told the bytes written so far and in all.
void write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors, const Json& metadata = Json::object(),
                       const std::function<void(uint64_t done, uint64_t total)>& progress = {});

}  // namespace ridge
