// One plane of a layer's KV as a KV of its own, for ops that read or write plane 0; and what its entries may be stored in.
#pragma once
#include "backend/kv_spec.h"
#include "base/error.h"

namespace ridge {

inline KvRef plane_alone(KvRef kv, int i) {
  kv.offsets[0] = kv.offsets[static_cast<size_t>(i)];
  kv.planes = {kv.planes[static_cast<size_t>(i)]};
  return kv;
}

// Of keys without values. In eight bits one scale would have to do for a latent and for the part that carries the position, whose sizes have nothing to do with each other.
inline FormatId latent_kv_format(FormatId asked_for, const char* what) {
  if (asked_for == FormatId::fp8_e4m3) fail("the KV cache of {} cannot be in fp8: use --kv-cache-dtype bf16 or f16", what);
  return asked_for;
}

}  // namespace ridge
