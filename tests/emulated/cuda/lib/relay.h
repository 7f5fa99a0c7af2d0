// Results that blocks wait for (src/cuda/lib/relay.h).
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
