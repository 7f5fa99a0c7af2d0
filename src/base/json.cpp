#include "base/json.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace ridge {
namespace {

constexpr int kMaxDepth = 512;

// Depth is checked before parsing: the parser itself is iterative, but destroying or dumping a deep tree recurses.
void refuse_deep_nesting(std::string_view text, std::string_view what) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) fail("{}: JSON nested deeper than {} levels", what, kMaxDepth);
    } else if (c == '}' || c == ']') --depth;
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  refuse_deep_nesting(text, what);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    const auto upto = text.substr(0, std::min<size_t>(e.byte, text.size()));
    fail("{}: not valid JSON at line {}: {}", what, 1 + std::count(upto.begin(), upto.end(), '\n'), e.what());
  } catch (const Json::exception& e) {
    fail("{}: not valid JSON: {}", what, e.what());
  }
}

Json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

}  // namespace ridge
