// MXFP4 for the nvfp4 kernels. A block's scale is a power of two; e4m3 holds 18 powers of two, 2^-9 to 2^8, so a tensor whose scales lie within 18 octaves (those of
// published models do) is an nvfp4 tensor with the same numbers, bit for bit, and 576 bytes a superblock where the wide panels take 1536.
#pragma once
#include <optional>
#include <vector>

#include "tensor/tensor.h"

namespace ridge::cpu {

struct Nvfp4Planes {
  std::vector<uint8_t> codes, scales;        // codes: empty where the stored ones serve
  StoredWeight weight;                       // views of them
};

// Nothing where the scales lie too far apart.
std::optional<Nvfp4Planes> mxfp4_as_nvfp4(const StoredWeight& stored);

}  // namespace ridge::cpu
