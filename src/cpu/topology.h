// The processors this process may run on.
#pragma once
#include <vector>

namespace ridge::cpu {

// Numbers of allowed CPUs: first one of each physical core, then their hardware siblings.
struct Topology {
  std::vector<int> cpus;
  int n_cores = 1;                           // the first n_cores of cpus; fewer where a container's quota of CPU time allows fewer
};
Topology read_topology();

bool pin_this_thread(int cpu);               // false when the kernel refuses

}  // namespace ridge::cpu
