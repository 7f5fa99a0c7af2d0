// Clusters (src/cuda/lib/cluster.h) are not emulated: kernels have one block each here.
#pragma once
#include "../../../../src/cuda/lib/cluster.h"

#include "base/check.h"

namespace ridge::cuda {

constexpr bool kHasClusters = false;
inline void arrive_there(uint32_t) { CHECK(kHasClusters); }
inline void copy_bulk_to_pair(void*, const void*, int, Barrier*) { CHECK(kHasClusters); }

}  // namespace ridge::cuda
