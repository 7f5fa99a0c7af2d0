// Weights in the layout that the matmul kernels read: panels of 16 outputs, each a sequential stream of superblocks of 64 inputs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/op.h"
#include "tensor/tensor.h"

namespace ridge {
class Team;
}

namespace ridge::cpu {

// Throws Error naming the weight and its format when there is no kernel for it. The work is shared among the team.
Weight pack_weight(const StoredWeight& stored, Arithmetic arithmetic, const std::function<std::byte*(int64_t)>& allocate, Team& team);

}  // namespace ridge::cpu
