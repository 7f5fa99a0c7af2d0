// A checkpoint in the other container: a safetensors folder as GGUF, a GGUF file as a folder. Numbers keep their format where the container has it; GGUF has no 8-bit
// floats and safetensors no blocks, and what is in those becomes bf16.
#pragma once
#include "quantize/quantizer.h"

namespace ridge {

struct ConvertReport {
  std::string architecture;                            // GGUF's name for it; empty when a folder was written
  uint64_t n_tensors = 0, bytes = 0;
  std::vector<std::string> left_out;                   // tensors that llama.cpp has no place for
  std::vector<std::string> differences;                // what llama.cpp will take to be otherwise than the configuration says
};

// `quantized`: round on the way, by the quantizer's plan. Nothing partial is left after an error.
ConvertReport convert_to_gguf(const Checkpoint& checkpoint, const std::string& path, const std::optional<QuantizeOptions>& quantized, const std::function<void(double share)>& progress = {});

// config.json, model.safetensors, generation_config.json, and the tokenizer: tokenizer.json when the file carries it, else vocabulary.gguf, the file's vocabulary alone.
// `plain`: the format of matrices; none: as they are. The folder appears when it is complete.
ConvertReport convert_to_folder(const Checkpoint& checkpoint, const std::string& folder, std::optional<FormatId> plain, const std::function<void(double share)>& progress = {});

}  // namespace ridge
