// A Backend that runs nothing: it notes the first op of a pass that another backend has no kernel for.
#pragma once
#include "backend/backend.h"
#include "base/check.h"

namespace ridge {

class OpCheck : public Backend {
 public:
  explicit OpCheck(const Backend& judge) : judge_(judge) {}
  std::string_view missing() const { return missing_; }          // name of the op; empty: there is none

  std::string name() const override { return judge_.name(); }
  void begin(const Step&) override {}
  void run(const Op& op) override {
    if (missing_.empty() && !judge_.supports(op)) missing_ = name_of(op);
  }
  void end() override {}

  std::byte* allocate(int64_t) override { refuse(); }
  Weight prepare(const StoredWeight&, Arithmetic) override { refuse(); }
  Weight prepare_table(const StoredWeight&) override { refuse(); }
  Tensor upload(const float*, int64_t) override { refuse(); }
  void download(void*, const Tensor&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { check_failed(__FILE__, __LINE__, "a pass asks for ops alone", ""); }
  const Backend& judge_;
  std::string_view missing_;
};

}  // namespace ridge
