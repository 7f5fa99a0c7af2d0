// Text as the inside of a JSON string, for what is written piece by piece while it streams. Bytes from 0x80 on are passed on as they are.
#pragma once
#include <string>
#include <string_view>

namespace ridge {

std::string json_escaped(std::string_view text);
inline std::string json_quoted(std::string_view text) { return '"' + json_escaped(text) + '"'; }

}  // namespace ridge
