// A program run to its end, its output collected, while the caller watches.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace ridge {

struct ChildResult {
  int exit_code = -1;                                  // 127: the program was not found
  std::string output;                                  // stdout and stderr together, the last 64 KiB
};

// `watch` is called about ten times a second; returning false ends the child (SIGTERM, then SIGKILL). `extra_env`: NAME=value.
ChildResult run_child(const std::vector<std::string>& command, const std::vector<std::string>& extra_env = {}, const std::function<bool()>& watch = nullptr);

}  // namespace ridge
