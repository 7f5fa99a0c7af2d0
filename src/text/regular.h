// Regular expressions as JSON Schema and guided answers have them (ECMA-262's, the part that describes a regular language), read into a tree that can be narrowed and
// written as a grammar. What looks around or back (lookahead, \b, \1) is refused by name.
#pragma once
#include <string_view>

#include "text/gbnf.h"

namespace ridge {

enum class RegularMatch : uint8_t {
  search,     // somewhere in the text, unless ^ and $ say more: a schema's `pattern`
  whole,      // all of the text: a guided regex
};

// Throws Error naming `what`, the place and the construct.
Gbnf parse_regular(std::string_view pattern, RegularMatch match, std::string_view what);

}  // namespace ridge
