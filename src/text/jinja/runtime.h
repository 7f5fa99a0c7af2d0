// What builtins need of the running template: its budget, and the ways to look into a value.
#pragma once
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace ridge::jinja {

class Runtime {
 public:
  explicit Runtime(std::optional<std::tm> now) : now_(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  void spend(int64_t n_steps) {
    if ((steps_left_ -= n_steps) < 0) raise("more than {} steps: the template loops or works on too much data", kMaxSteps);
  }
  void check_text(size_t n_bytes) const {
    if (n_bytes > kMaxTextBytes) raise("text longer than {} bytes", kMaxTextBytes);
  }
  // Text that a template made: counted and bounded.
  Value text(std::string bytes, bool markup = false);

  Value attribute(const Value& object, std::string_view name);          // object.name
  Value item(const Value& object, const Value& key);                    // object[key]
  std::vector<Value> iterate(const Value& value);                       // every element; consumes a generator
  int64_t length(const Value& value);
  Value call(const Value& callee, Args& args);

  std::shared_ptr<Namespace> make_namespace();                          // emptied when the rendering ends: namespaces can form cycles
  std::tm now() const;                                                  // local time, or the one that was pinned

 private:
  int64_t steps_left_ = kMaxSteps;
  std::optional<std::tm> now_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;

  std::optional<Value> real_attribute(const Value& object, std::string_view name);
  std::optional<Value> subscript(const Value& object, const Value& key);
};

}  // namespace ridge::jinja
