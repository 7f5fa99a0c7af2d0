// The pre-tokenizers that GGUF files name (tokenizer.ggml.pre): each name stands for regular expressions that split the text one after the other, and for a few
// habits of its model.
#pragma once
#include <span>
#include <string_view>

namespace ridge {

struct GgufPreTokenizer {
  std::span<const std::string_view> patterns;       // a pattern may also be one of the words below
  bool ignore_merges = false;
  bool add_bos = false;                             // where the file does not say
  bool raw_text = false;                            // SentencePiece's spelling (U+2581, <0xXX>) instead of the byte-level alphabet
};

// Instead of a pattern: digits in threes from the right.
constexpr std::string_view kDigitGroups = "digit groups", kDigitGroupsToBoundary = "digit groups up to a boundary", kNumberGroups = "number groups";

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);        // null when the name is not known

}  // namespace ridge
