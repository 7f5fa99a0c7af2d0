// What this machine is: processor, caches, memory, graphics cards; as far as the operating system tells without special rights.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ridge {

struct Machine {
  std::string cpu;                                     // "AMD EPYC 9654 96-Core Processor", "Arm Neoverse-N1"
  int n_cpus = 0, n_usable = 0;                        // of the machine, and those this process may run on
  int64_t memory_bytes = 0, available_bytes = 0;       // within the limits of a container
  std::vector<std::string> caches;                     // "L2 1 MiB", of the first CPU
};
Machine this_machine();

struct Gpu { std::string name, driver; int64_t memory_bytes = 0; };
struct GpuReport {
  std::vector<Gpu> gpus;
  std::string note;                                    // why there is none
};
GpuReport find_gpus();

}  // namespace ridge
