// Results and counts that blocks wait for (src/cuda/lib/relay.h).
#pragma once
#include "cuda_bf16.h"

namespace ridge::cuda {

// Others go on before a number is looked at, as whoever waits for it asks again and again.
template <class T>
T load_relayed(const T* p) {
  emulated::pause();
  return *p;
}
template <class To, class From>
void store_relayed(To* p, const From& v) { *reinterpret_cast<From*>(p) = v; }

}  // namespace ridge::cuda

#include "../../../../src/cuda/lib/relay.h"

namespace ridge::cuda {

inline void Turnstile::pass() { n_passed++; }
inline void Turnstile::await(uint32_t n, uint32_t n_waiting) {
  emulated::wait_until([this, n] { return n_passed >= n; });
  if (++n_waited == n_waiting) n_passed = 0, n_waited = 0;
}

}  // namespace ridge::cuda
