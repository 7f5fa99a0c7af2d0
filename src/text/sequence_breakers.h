// Strings that end a repetition for the DRY sampler (a new line, a colon), as the token sequences that can spell them. A token may hold the whole string ("x:\n"), or
// end in the string's beginning, in which case the rest must follow as it is tokenized by itself.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace ridge {

struct SequenceBreakers {
  std::unordered_map<int32_t, std::vector<std::vector<int32_t>>> after;      // by first token: what must follow it, empty when it is enough by itself
};

inline const std::vector<std::string> kDefaultSequenceBreakers = {"\n", ":", "\"", "*"};

// Looks at every token of the vocabulary, which takes a while: keep what comes out. Throws Error for an empty string or more than 40 bytes.
SequenceBreakers find_sequence_breakers(const Tokenizer& tokenizer, const std::vector<std::string>& strings);

}  // namespace ridge
