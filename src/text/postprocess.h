// Post-processors: which special tokens stand before and after a text (bos, eos, [CLS], [SEP]).
#pragma once
#include <cstdint>
#include <vector>

#include "text/tokenizer_json.h"

namespace ridge {

struct SpecialFrame {
  std::vector<int32_t> before, after;
};

// Adds what the section puts around the frame so far (Sequence: one after the other). Refuses an unknown type by name.
void add_post_processor(SpecialFrame& frame, const JsonSection& section);

}  // namespace ridge
