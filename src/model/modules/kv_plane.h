// One plane of a layer's KV as a KV of its own, for ops that read or write plane 0.
#pragma once
#include "backend/kv_spec.h"

namespace ridge {

inline KvRef plane_alone(KvRef kv, int i) {
  kv.offsets[0] = kv.offsets[static_cast<size_t>(i)];
  kv.planes = {kv.planes[static_cast<size_t>(i)]};
  return kv;
}

}  // namespace ridge
