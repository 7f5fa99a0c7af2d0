// Tokens to the tree, by recursive descent over jinja2's grammar (which is Python's with filters, tests and ~ added).
#pragma once
#include <string_view>

#include "text/jinja/ast.h"

namespace ridge::jinja {

// Throws SyntaxError.
Body parse(std::string_view source);

}  // namespace ridge::jinja
