// Attention on the tensor cores (lib/flash.h has its arithmetic), for K and V of 16 bits or in fp8 and heads of 64, 128 or 256.
#pragma once
#include "cuda/kernels/kernels.h"

namespace ridge::cuda {

// Sequences with fewer rows than this in a step go to the kernel for few rows, the others to the one for many, where there is one.
constexpr int kFlashManyRows = 16;

// A function of the layer alone, never of the step: a layer has one arithmetic.
bool flash_supports(const PagedAttention& op);

// Rows whose tiles are in scratch together, at most.
constexpr int kFlashRowsAtOnce = 256;
int64_t flash_scratch_needed(const PagedAttention& op, const Launch& launch);
void flash_attention(const PagedAttention& op, Tiles tiles, const Launch& launch);

// Rows of sequences that have many in this step (sm_90a). False: it has no kernel for this, all rows are for the other one.
bool flash_many_rows_supports(const PagedAttention& op, const Launch& launch);
void flash_many_rows(const PagedAttention& op, Tiles tiles, const Launch& launch);

// The second kernel of decode_attention.
constexpr int kFoldFewTiles = 8;                                            // a thread holds those of a head at once; a cluster that folds its own has no more blocks
void fold_tiles(const PagedAttention& op, int n_tiles, const Lanes& lanes, const Launch& launch);

}  // namespace ridge::cuda
