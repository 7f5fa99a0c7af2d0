// The door between GGUF and Hugging Face: finds the row of an architecture (gguf/architecture.h) and the line of a tensor's name in it. Beyond this door only
// Hugging Face's names exist.
#pragma once
#include "files/gguf/architecture.h"

namespace ridge {

const std::vector<GgufArchitecture>& gguf_architectures();

// The architecture a file has; Error naming the nearest ones when it is not in the table.
const GgufArchitecture& gguf_architecture_of(const GgufFile& file);
// Null when there is none for the configuration's model_type.
const GgufArchitecture* gguf_architecture_of(const Json& config);
// The one that needs no further key to be told from others of its name; null when the name is not in the table.
const GgufArchitecture* find_gguf_architecture(std::string_view gguf_name);

struct GgufMatch {
  const GgufName* line;
  std::string name;                         // on the other side; of a stack's line, "{}" stands for the index
  int64_t index = -1;                       // along a stack, when an element of one was matched
};

// How a tensor of a file is read; nothing when no line has its name.
std::optional<GgufMatch> match_gguf_name(const GgufArchitecture& a, std::string_view gguf_name);
// What a tensor becomes in a file: usually one tensor, two where gate and up or keys and values part; none when no line has its name.
std::vector<GgufMatch> match_hf_name(const GgufArchitecture& a, std::string_view hf_name);

// The layer a tensor's name speaks of ("....layers.3.", "....h.3."); -1 when of none.
int64_t layer_in(std::string_view hf_name);

}  // namespace ridge
