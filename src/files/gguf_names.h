// The door between GGUF and Hugging Face: tensor names, metadata keys and the few changes that llama.cpp's converter makes to tensors, one line each in the
// tables of gguf_names.cpp. Beyond this file only Hugging Face's names exist. What is not in a table passes unchanged (`mtp.*`).
//
//   rows of q and k     llama-family files keep the two halves of a rotated head interleaved (row 2j, 2j + 1 of a head are Hugging Face's j and j + d/2)
//   norms of Gemma      are stored with 1 added
//   GPT-2's matrices    are stored [out, in], not Conv1D's [in, out]
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ridge {

struct GgufName {
  std::string_view gguf, hf;                // "{}" stands for the layer's number; without ".weight" or ".bias"
};

struct GgufArchitecture {
  std::string_view gguf;                    // general.architecture
  std::string_view model_type, class_name;  // config.json's model_type and architectures[0]
  std::vector<GgufName> names;
  bool interleaved_heads;                   // q and k rows are permuted
  bool norms_plus_one;
};

// Null when the architecture is not in the table.
const GgufArchitecture* find_gguf_architecture(std::string_view gguf_name);
const GgufArchitecture* gguf_architecture_of(const Json& config);

std::string gguf_to_hf_name(const GgufArchitecture& a, std::string_view gguf_name);
std::string hf_to_gguf_name(const GgufArchitecture& a, std::string_view hf_name);

// What has to be done to a tensor (by its Hugging Face name) between the two worlds.
bool has_interleaved_heads(const GgufArchitecture& a, std::string_view hf_name);
bool has_shifted_norm(const GgufArchitecture& a, std::string_view hf_name);

// The file's row that is Hugging Face's row r, for heads of d rows; and the inverse.
inline int64_t interleaved_row(int64_t r, int64_t d) { return r / d * d + (r % d < d / 2 ? 2 * (r % d) : 2 * (r % d - d / 2) + 1); }
inline int64_t deinterleaved_row(int64_t r, int64_t d) { return r / d * d + (r % 2 == 0 ? r % d / 2 : d / 2 + r % d / 2); }

}  // namespace ridge
