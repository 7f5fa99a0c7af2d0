// A backend that has memory and nothing else, for tests of the cache.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace ridge {

class NullBackend : public Backend {
 public:
  std::string name() const override { return "null"; }
  std::byte* allocate(int64_t n_bytes) override {
    blocks_.push_back(std::make_unique<std::byte[]>(size_t(n_bytes) + 64));
    auto address = reinterpret_cast<uintptr_t>(blocks_.back().get());
    return reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  }
  Weight prepare(const StoredWeight&, Arithmetic) override { return {}; }
  Weight prepare_table(const StoredWeight&) override { return {}; }
  Tensor upload(const float*, int64_t) override { return {}; }
  void begin(const Step&) override {}
  void run(const Op&) override {}
  void end() override {}
  void download(void*, const Tensor&) override {}

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

}  // namespace ridge
