#include "cpu/topology.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>

namespace ridge::cpu {
namespace {

// The first number of ".../thread_siblings_list" ("0,64" or "0-1"): the same for all siblings of a core.
int core_of(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  int first = cpu;
  return file >> first ? first : cpu;
}

// CPUs' worth of time that the container may use, from cgroup v2's "quota period" in microseconds; a large number for "max".
int quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double limit = 0, period = 0;
  if (file >> limit >> period && limit > 0 && period > 0) return std::max(1, static_cast<int>(std::min(limit / period + 0.5, 1e6)));
  return 1 << 20;
}

}  // namespace

Topology read_topology() {
  std::vector<int> allowed;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
  } else {                                   // more CPUs than a cpu_set_t holds
    for (int cpu = 0; cpu < static_cast<int>(std::thread::hardware_concurrency()); ++cpu) allowed.push_back(cpu);
  }
  if (allowed.empty()) allowed.push_back(0);

  Topology topology;
  std::vector<int> siblings;
  std::set<int> cores;
  for (const int cpu : allowed) (cores.insert(core_of(cpu)).second ? topology.cpus : siblings).push_back(cpu);
  topology.n_cores = std::min(static_cast<int>(topology.cpus.size()), quota());
  topology.cpus.insert(topology.cpus.end(), siblings.begin(), siblings.end());
  return topology;
}

bool pin_this_thread(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace ridge::cpu
