// Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): ten rounds of two 32x32 multiplications over a 128-bit counter. A draw is a
// pure function of seed and counter: a preempted, batched or speculated token meets the same number.
#include <random>

#include "sample/sampler.h"

namespace ridge {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c = {uint32_t(b >> 32) ^ c[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ key[1], uint32_t(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

double uniform(uint64_t seed, uint64_t counter, uint32_t stream) {
  const auto r = philox({uint32_t(counter), uint32_t(counter >> 32), stream, 0}, {uint32_t(seed), uint32_t(seed >> 32)});
  const uint64_t bits = (uint64_t{r[0]} << 32 | r[1]) >> 11;
  return double(bits) * 0x1p-53;
}

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace ridge
