#include "cpu/features.h"

#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace ridge {
namespace cpu {
namespace {

using Features = std::vector<std::pair<std::string_view, bool>>;

#if defined(__x86_64__)

// AMX has state that the kernel saves only for processes that asked for it.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;             // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Features read_features() {
  __builtin_cpu_init();
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool leaf7 = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0;
  const bool tiles = leaf7 && (d >> 24 & 1) && may_use_tiles();
  const bool wide = __builtin_cpu_supports("avx512f");                    // also says that the system saves the registers
  unsigned a1 = 0, b1 = 0, c1 = 0, d1 = 0;
  const bool leaf71 = leaf7 && __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) != 0;
  unsigned a0 = 0, b0 = 0, c0 = 0, d0 = 0;
  const bool leaf1 = __get_cpuid(1, &a0, &b0, &c0, &d0) != 0;
  return {{"sse4_2", __builtin_cpu_supports("sse4.2")},
          {"avx", __builtin_cpu_supports("avx")},
          {"avx2", __builtin_cpu_supports("avx2")},
          {"fma", __builtin_cpu_supports("fma")},
          {"f16c", __builtin_cpu_supports("avx") && leaf1 && (c0 >> 29 & 1)},
          {"avx_vnni", __builtin_cpu_supports("avx2") && leaf71 && (a1 >> 4 & 1)},
          {"avx512f", wide},
          {"avx512bw", __builtin_cpu_supports("avx512bw")},
          {"avx512dq", __builtin_cpu_supports("avx512dq")},
          {"avx512vl", __builtin_cpu_supports("avx512vl")},
          {"avx512_vnni", __builtin_cpu_supports("avx512vnni")},
          {"avx512_bf16", wide && leaf71 && (a1 >> 5 & 1)},
          {"avx512_fp16", wide && leaf7 && (d >> 23 & 1)},
          {"amx_tile", tiles},
          {"amx_int8", tiles && (d >> 25 & 1)},
          {"amx_bf16", tiles && (d >> 22 & 1)}};
}

#elif defined(__aarch64__)

Features read_features() {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  const auto in = [](unsigned long word, int bit) { return (word >> bit & 1) != 0; };
  return {{"asimd", in(first, 1)},   {"asimdhp", in(first, 10)}, {"asimddp", in(first, 20)}, {"sve", in(first, 22)},
          {"sve2", in(second, 1)},   {"i8mm", in(second, 13)},   {"bf16", in(second, 14)},   {"sme", in(second, 23)}};
}

#else

Features read_features() { return {}; }

#endif

const Features& features() {
  static const Features all = read_features();
  return all;
}

}  // namespace

bool has_feature(std::string_view name) {
  for (const auto& [feature, present] : features())
    if (feature == name) return present;
  return false;
}

}  // namespace cpu

std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
  for (const auto& [feature, present] : cpu::features())
    if (present) names.emplace_back(feature);
  return names;
}

}  // namespace ridge
