// The devices that every machine has: the reference, and each ISA of the processor. As (device, ISA).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"

namespace ridge {

inline std::vector<std::pair<std::string, std::string>> test_devices() {
  std::vector<std::pair<std::string, std::string>> all = {{"ref", ""}};
  for (const std::string& isa : available_isas()) all.emplace_back("cpu", isa);
  return all;
}

}  // namespace ridge
