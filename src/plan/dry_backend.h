// A Backend that prepares nothing and runs nothing: loading a model on it checks the config and every tensor's shape at no cost, for `ridge inspect`.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace ridge {

class DryBackend : public Backend {
 public:
  std::string name() const override { return "dry"; }
  std::byte* allocate(int64_t n_bytes) override {
    kept_.push_back(std::make_unique<std::byte[]>(size_t(n_bytes)));
    return kept_.back().get();
  }
  Weight prepare(const StoredWeight& w, Arithmetic arithmetic) override {
    return {.format = w.format, .arithmetic = arithmetic, .rows = w.rows, .cols = w.cols, .scale = w.scale, .packed = w.codes, .bytes = w.codes.bytes() + w.scales.bytes(),
            .name = w.name};
  }
  Weight prepare_table(const StoredWeight& w) override { return prepare(w, {}); }
  Tensor upload(const float* values, int64_t n) override {
    Tensor t = allocate_f32(1, n);
    std::copy(values, values + n, t.f32());
    return t;
  }
  void begin(const Step&) override {}
  void run(const Op&) override {}
  void end() override {}
  void download(void*, const Tensor&) override {}

 private:
  std::vector<std::unique_ptr<std::byte[]>> kept_;
};

}  // namespace ridge
