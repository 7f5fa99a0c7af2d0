// Where in a model an op of a step is, in words, for messages: ops carry no names but those of their weights, and an op without weights lies between two that have some.
//   add_norm + matmul "model.layers.7.self_attn.q_proj.weight", "model.layers.7.self_attn.k_proj.weight" (layer 7)
//   paged_attention between "model.layers.7.self_attn.v_proj.weight" and "model.layers.7.self_attn.o_proj.weight" (layer 7)
#pragma once
#include <span>
#include <string>

#include "backend/op.h"

namespace ridge {

// Of ops [first, first + n), which ran as one.
std::string place_of(std::span<const Op> ops, size_t first, size_t n);

}  // namespace ridge
