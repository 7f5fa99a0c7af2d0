// What the compiler of grammars is given: schemas, expressions, choices and grammars of others, checked, bounded and written as its GBNF.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace ridge {

struct SpecialToken { int32_t id; std::string text; };
std::vector<SpecialToken> special_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& but);     // longest first

// All throw Error: too large, too deep, contradictory, or saying where the source is wrong.
std::string schema_source(const Json& schema);
std::string regex_source(std::string_view pattern);
std::string choice_source(const std::vector<std::string>& choices);
// Special tokens in its literals become those tokens: their text alone would never come.
std::string gbnf_source(std::string_view grammar, const std::vector<SpecialToken>& specials);

}  // namespace ridge
