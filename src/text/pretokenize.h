// Pre-tokenizers: text to pieces that the model then encodes one by one. A stage takes all pieces and leaves all pieces, so that a regular expression
// sets up once per text; strings that a stage has to make go into the arena.
#pragma once
#include <memory>
#include <vector>

#include "text/pattern.h"
#include "text/token_model.h"
#include "text/tokenizer_json.h"

namespace ridge {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(std::vector<Piece>& pieces, StringArena& arena) const = 0;
};
using PreTokenizerList = std::vector<std::unique_ptr<PreTokenizer>>;

// What becomes of the matches of a Split and of what lies between them.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert);
// Runs of digits in threes counted from the right. `all_numbers`: \p{N} instead of \p{Nd}. `to_boundary`: only runs that no letter follows.
std::unique_ptr<PreTokenizer> make_digit_groups(bool all_numbers, bool to_boundary);
std::unique_ptr<PreTokenizer> make_byte_level_characters();          // bytes to their byte-level characters

// Appends the stages of a section (Sequence: those of its parts; ByteLevel: prefix, split, characters). Refuses an unknown type by name.
void append_pre_tokenizers(PreTokenizerList& stages, const JsonSection& section);

// True for the stage that make_byte_level_characters makes: as the last one it can be left to a model that takes bytes.
bool is_byte_level_characters(const PreTokenizer& stage);

}  // namespace ridge
