#include "cpu/dispatch.h"

#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "cpu/features.h"

namespace ridge {
namespace cpu {
namespace {

struct Candidate {
  std::string_view name;
  std::vector<std::string_view> needs;
  const KernelTable& (*table)();
};

// Those that the build has for this architecture (CMakeLists.txt), best first.
const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
#if defined(__x86_64__)
      {"avx512", {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}, avx512::kernel_table},
      {"avx2", {"avx2", "fma", "f16c"}, avx2::kernel_table},
#elif defined(__aarch64__)
      {"neon", {"asimd", "asimdhp", "asimddp"}, neon::kernel_table},
#endif
      {"scalar", {}, scalar::kernel_table},
  };
  return all;
}

bool is_available(const Candidate& c) {
  for (const std::string_view feature : c.needs)
    if (!has_feature(feature)) return false;
  return true;
}

}  // namespace

Isa find_isa(std::string_view name) {
  std::string known;
  for (const Candidate& c : candidates()) {
    if (!is_available(c)) continue;
    if (name.empty() || name == c.name) return {c.name, c.table()};
    known += known.empty() ? "" : ", ";
    known += c.name;
  }
  fail("this machine or this build has no CPU kernels for '{}'; it has {}", name, known);
}

}  // namespace cpu

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const cpu::Candidate& c : cpu::candidates())
    if (cpu::is_available(c)) names.emplace_back(c.name);
  return names;
}

std::vector<std::string> matmul_candidates(std::string_view isa) {
  std::vector<std::string> names;
  for (const auto& kernel : cpu::find_isa(isa).table.matmul) names.emplace_back(kernel.name);
  return names;
}

}  // namespace ridge
