#include "engine/device.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "ref/ref_backend.h"

namespace ridge {

std::vector<std::string> known_devices() { return {"cuda", "cpu", "ref"}; }

std::string resolve_device(const std::string& device) {
  if (device == "auto") return cuda_unavailable_reason().empty() ? "cuda" : "cpu";
  const std::vector<std::string> known = known_devices();
  if (std::find(known.begin(), known.end(), device) == known.end()) fail("device '{}' is unknown: there are auto, {}", device, fmt::join(known, ", "));
  return device;
}

std::unique_ptr<Backend> make_backend(const EngineOptions& options) {
  if (resolve_device(options.device) == "cuda") {
    if (!options.isa.empty()) fail("device cuda has no ISAs to choose from ('{}' was asked for): leave it out, or use device cpu", options.isa);
    return make_cuda_backend({.check_f32 = options.activations == FormatId::f32, .blocking = options.blocking_launches});
  }
  if (options.n_threads < 0 || options.n_threads > 4096) fail("threads = {}: must be 0 (one per core) to 4096", options.n_threads);
  if (resolve_device(options.device) == "ref") {
    if (!options.isa.empty()) fail("device ref has no ISAs to choose from ('{}' was asked for): leave it out, or use device cpu", options.isa);
    return make_ref_backend();
  }
  return make_cpu_backend({.n_threads = options.n_threads, .isa = options.isa});
}

int64_t free_memory(const std::string& device) {
  if (device == "cuda") {
    if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) fail("--device cuda: {}", reason);
    return cuda_free_bytes();
  }
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  int64_t kilobytes = 0;
  while (meminfo >> key >> kilobytes) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  return int64_t{4} << 30;                   // a system that does not say: assume little
}

int usual_batch_tokens(const std::string& device) {
  if (device != "cuda") return 512;
  const int64_t gib = free_memory(device) >> 30;
  return gib >= 32 ? 8192 : gib >= 8 ? 2048 : 512;
}

PageCopy page_copy_of(const std::string& device) { return device == "cuda" ? cuda_copy : nullptr; }

double measure_read_bandwidth_of(const std::string& device, int n_threads, int64_t n_bytes, double seconds) {
  return device == "cuda" ? measure_cuda_read_bandwidth() : measure_read_bandwidth(n_threads, n_bytes, seconds);
}

}  // namespace ridge
