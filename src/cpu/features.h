// What this machine's processor can do, as far as kernels ask: the names that Linux uses in /proc/cpuinfo.
#pragma once
#include <string_view>

namespace ridge::cpu {

// "avx2" "fma" "f16c" "avx512f" "avx512_vnni" "amx_int8" ... or "asimd" "asimddp" "asimdhp" "i8mm" ...; false for a name of another architecture.
// AMX is true only once the kernel has let this process use the tiles.
bool has_feature(std::string_view name);

}  // namespace ridge::cpu
