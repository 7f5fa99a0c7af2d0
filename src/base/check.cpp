#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ridge {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  fmt::print(stderr, "{}:{}: CHECK failed: {}{}{}\n", file, line, condition, values.empty() ? "" : "  with ", values);
  std::fflush(stderr);
  std::abort();
}

}  // namespace ridge
