// JSON as the project uses it: nlohmann's, objects kept in the order of the file, and a parser that reports the file and the place.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ridge {

using Json = nlohmann::ordered_json;

// Throws Error naming `what` (a file or a request) with the line of the mistake. Nesting deeper than 512 is refused.
Json parse_json(std::string_view text, std::string_view what);
Json read_json_file(const std::string& path);

}  // namespace ridge
