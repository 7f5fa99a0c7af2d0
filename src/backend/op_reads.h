// Whether what an op leaves in a tensor is looked at again. A kernel that hands its result on in another form, or in 16 bits, asks before it leaves the tensor unwritten.
#pragma once
#include <span>

#include "backend/op.h"

namespace ridge {

// By an op from `first` on, before it is written anew. Scratch is shared: what is read may lie where the tensor lay and be another op's result by then (a layer's queries where the
// gate of the one before was, in shorter rows).
bool is_read_from(std::span<const Op> ops, size_t first, const Tensor& t);

}  // namespace ridge
