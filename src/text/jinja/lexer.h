// Template source to tokens, with jinja2's white-space rules as transformers sets them (trim_blocks, lstrip_blocks, no trailing newline):
//   {%- and {{- eat all white space before, -%} and -}} all after; %} and #} eat one newline after unless written +%};
//   white space between a line's start and {% or {# goes unless written {%+; a variable tag keeps it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ridge::jinja {

enum class TokenType { kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd, kName, kString, kInteger, kFloat, kOperator, kEnd };

struct Token {
  TokenType type;
  int line;
  std::string text;                 // data, name, decoded string, digits of a number, operator
};

// A syntax error: line and message.
struct SyntaxError {
  int line;
  std::string message;
};

std::vector<Token> tokenize(std::string_view source);

}  // namespace ridge::jinja
