// A step's ops become launches: in order, and where one kernel does several neighbours at once, together. But for the first line of the table nothing of a step changes by it: results are the same bits,
// only tensors that the very next op overwrites or consumes (a gate before its activation, keys before their norm) may not be written. What the first line says goes by the ops alone, never by the number of rows.
//
//   norm, matmul                          the matmul multiplies its sums with the norm's factor          any number, for rms without bias, of up to 8,192 columns, that nothing else reads
//     few rows: its blocks make the rest of the norm themselves; several: the matmul before leaves it, where its sums end, and sums of squares, or a kernel does; many: a kernel, with factors
//   matmul, matmul over the same input    copied once for both                                           6 to 32 tokens
//   matmul, norm with something pending   the matmul adds to the residual stream, the norm follows       any number
//   gate and up matmul, activation        activated where the sums end                                   up to 32 tokens
//   head norms, rope and store            one kernel, where the norms are rms with weights alone         any number
//   the same, attention                   queries leave in the 16 bits to which attention rounds them    where all rows are of prompts and nothing else reads them
//   all of them                           one kernel and its fold                                        up to 8 tokens
//   another norm, or attention, matmul    the result leaves as the matmul's input (lib/lanes.h, lib/tiles.h)   from 6 tokens on, where nothing else reads it
//   gate and up matmul, activation, matmul  the same, after activation where the sums end                the same
#pragma once
#include <functional>
#include <vector>

#include "cuda/kernels/kernels.h"

namespace ridge::cuda {

// Whether there is a kernel for the op in this form.
bool supports(const Op& op);

// `after_each` (may be empty): after the launches of ops [first, first + n), which went together.
void launch_all(const std::vector<Op>& ops, const Launch& launch, const std::function<void(size_t first, size_t n)>& after_each = {});

// Which tensors and weights the ops name, in order: two steps of the same shape and fingerprint may use the same graph.
uint64_t fingerprint(const std::vector<Op>& ops);

}  // namespace ridge::cuda
