// From a device's name to its Backend.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/options.h"

namespace ridge {

std::vector<std::string> known_devices();                              // "cpu", "ref"

// "auto" becomes the best device there is; an unknown name throws Error with those that exist.
std::string resolve_device(const std::string& device);
std::unique_ptr<Backend> make_backend(const EngineOptions& options);

// Bytes of memory that may be taken without pushing something else out.
int64_t free_memory();

}  // namespace ridge
