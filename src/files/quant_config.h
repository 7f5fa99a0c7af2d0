// Weights that checkpoints publish as several tensors, put together as one StoredWeight. Known: nvfp4 by ModelOpt (X.weight u8, X.weight_scale e4m3,
// X.weight_scale_2 f32) and by compressed-tensors (X.weight_packed, X.weight_scale, X.weight_global_scale: a divisor); fp8 with a scale for 128 x 128 numbers
// (X.weight e4m3, X.weight_scale_inv), for a row or for all (X.weight_scale); mxfp4 as gpt-oss has it (X_blocks, X_scales). Other schemes are recognised by their
// tensors and refused by name, so that codes are never taken for numbers.
#pragma once
#include "files/tensor_table.h"

namespace ridge {

// The weight `name` when it is stored in planes; nothing when it is an ordinary tensor or missing.
std::optional<StoredWeight> assemble_quantized(const TensorTable& table, std::string_view name);

// True when `name` can be assembled although no tensor is called so (compressed-tensors' weight_packed).
bool has_quantized(const TensorTable& table, std::string_view name);

}  // namespace ridge
