#include "cli/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "cli/child_process.h"

namespace ridge {
namespace {

std::string first_line_of(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// "key<tab>: value" of the first processor in /proc/cpuinfo.
std::string cpuinfo(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// On Arm the kernel gives numbers: who made the core, and which.
std::string arm_name() {
  static const std::map<std::string, std::string> kCores = {
      {"0x41/0xd03", "Arm Cortex-A53"}, {"0x41/0xd08", "Arm Cortex-A72"}, {"0x41/0xd0b", "Arm Cortex-A76"}, {"0x41/0xd0c", "Arm Neoverse-N1"}, {"0x41/0xd40", "Arm Neoverse-V1"},
      {"0x41/0xd49", "Arm Neoverse-N2"}, {"0x41/0xd4f", "Arm Neoverse-V2"}, {"0x41/0xd84", "Arm Neoverse-V3"}, {"0x41/0xd8e", "Arm Neoverse-N3"}, {"0xc0/0xac3", "Ampere-1"}, {"0xc0/0xac4", "Ampere-1A"}};
  const std::string code = cpuinfo("CPU implementer") + "/" + cpuinfo("CPU part");
  const auto known = kCores.find(code);
  return known != kCores.end() ? known->second : code == "/" ? "unknown" : "Arm core " + code;
}

int64_t meminfo(const std::string& key) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::strtoll(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

// A container's limit; 0 when there is none.
int64_t cgroup_number(const char* v2, const char* v1) {
  for (const char* path : {v2, v1}) {
    const std::string text = first_line_of(path);
    if (!text.empty() && text != "max") return std::strtoll(text.c_str(), nullptr, 10);
  }
  return 0;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpuinfo("model name");
  if (machine.cpu.empty()) machine.cpu = arm_name();
  machine.n_cpus = int(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  machine.n_usable = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : machine.n_cpus;
  machine.memory_bytes = meminfo("MemTotal");
  machine.available_bytes = meminfo("MemAvailable");
  const int64_t limit = cgroup_number("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  if (limit > 0 && limit < machine.memory_bytes) {
    const int64_t used = cgroup_number("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes");
    machine.memory_bytes = limit;
    machine.available_bytes = std::min(machine.available_bytes, std::max<int64_t>(limit - used, 0));
  }
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = first_line_of(folder + "level"), type = first_line_of(folder + "type"), size = first_line_of(folder + "size");
    if (level.empty()) break;
    if (type == "Instruction") continue;
    const int64_t kib = std::strtoll(size.c_str(), nullptr, 10);
    machine.caches.push_back(kib >= 1024 && kib % 1024 == 0 ? fmt::format("L{} {} MiB", level, kib / 1024) : fmt::format("L{} {} KiB", level, kib));
  }
  return machine;
}

GpuReport find_gpus() {
  GpuReport report;
  const ChildResult smi = run_child({"nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"});
  if (smi.exit_code == 0) {
    std::istringstream lines(smi.output);
    for (std::string line; std::getline(lines, line);) {
      const size_t a = line.find(", "), b = line.rfind(", ");
      if (a == std::string::npos || a == b) continue;
      report.gpus.push_back({line.substr(0, a), line.substr(a + 2, b - a - 2), std::strtoll(line.c_str() + b + 2, nullptr, 10) << 20});
    }
  }
  if (!report.gpus.empty()) return report;
  void* library = ::dlopen("libcuda.so.1", RTLD_LAZY);
  if (library) ::dlclose(library);
  std::error_code ec;
  const bool device = std::filesystem::exists("/dev/nvidiactl", ec);
  if (device && !library) report.note = "there is an NVIDIA device, but libcuda.so.1 is missing (the driver's user part)";
  else if (library && smi.exit_code != 0) report.note = "libcuda.so.1 is there, but nvidia-smi finds no GPU";
  else report.note = "none found (no NVIDIA driver)";
  return report;
}

}  // namespace ridge
