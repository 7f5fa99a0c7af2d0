// Counts that blocks wait for (src/cuda/lib/relay.h).
#pragma once
#include "../../../../src/cuda/lib/relay.h"

namespace ridge::cuda {

inline void Turnstile::pass() { n_passed++; }
inline void Turnstile::await(uint32_t n, uint32_t n_waiting) {
  emulated::wait_until([this, n] { return n_passed >= n; });
  if (++n_waited == n_waiting) n_passed = 0, n_waited = 0;
}

}  // namespace ridge::cuda
