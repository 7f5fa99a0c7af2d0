// Safetensors: 8 bytes of header length N (little-endian), N bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end)}, "__metadata__": {...}},
// then the tensors' bytes; offsets count from the end of the header and cover it without overlaps or holes.
#pragma once
#include "files/weight_file.h"

namespace ridge {

// model.safetensors.index.json when there is one (its shards must lie in the folder), else model.safetensors, else every *.safetensors of the folder.
// `config` tells what the container does not: GPT-2's Conv1D weights come out transposed. Null when the folder has no safetensors.
std::unique_ptr<WeightFile> open_safetensors_folder(const std::string& folder, const Json& config);
bool has_safetensors(const std::string& folder);

// "BF16" and so on; nothing for formats in blocks.
std::optional<std::string_view> safetensors_dtype(FormatId format);

// The __metadata__ of a file opened by these functions; an empty object for other containers.
const Json& safetensors_metadata(const WeightFile& file);

}  // namespace ridge
