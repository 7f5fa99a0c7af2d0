// The world's fault: a file, a config, a request or a flag is wrong. The message names the thing, the value and the remedy.
// Caught in main, in the HTTP handler and at admission; a programmer's mistake is a CHECK instead.
#pragma once
#include <fmt/format.h>
#include <stdexcept>
#include <string>

namespace ridge {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace ridge
