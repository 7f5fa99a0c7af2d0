// The adapters that requests may name as their model, for who checks a request: the engine's own list is its thread's alone.
#pragma once
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace ridge {

class AdapterNames {
 public:
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(name);
  }
  void remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::erase(names_, name);
  }
  bool has(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

}  // namespace ridge
