// From a device's name to its Backend.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/options.h"

namespace ridge {

std::vector<std::string> known_devices();                              // "cuda", "cpu", "ref"

// "auto" becomes cuda where a GPU can be used, else cpu; an unknown name throws Error with those that exist.
std::string resolve_device(const std::string& device);
std::unique_ptr<Backend> make_backend(const EngineOptions& options);

// Bytes of the device's memory that may be taken without pushing something else out; throws Error where there is no such device.
int64_t free_memory(const std::string& device);

// Tokens of a step that keep the device at its best: 512 on a CPU; on a GPU thousands, as far as its free memory has room for their activations.
int usual_batch_tokens(const std::string& device);

// Copies inside the device's memory, or between it and the host's, and waits for it; null: the memory is the host's.
using PageCopy = void (*)(std::byte* to, const std::byte* from, int64_t n_bytes);
PageCopy page_copy_of(const std::string& device);

// Bytes per second that the device reads from its memory: the limit that speeds are compared with. `n_threads` and `n_bytes` are for the CPU.
double measure_read_bandwidth_of(const std::string& device, int n_threads, int64_t n_bytes, double seconds);

}  // namespace ridge
