// From a file's planes to the units of lib/unit.h, on the device: raw rows are copied in and rearranged there, at the speed of the bus.
#pragma once
#include <cuda_runtime.h>

#include "backend/op.h"

namespace ridge::cuda {

// Rows of q8_0, q4_0, q4_1, nvfp4, mxfp4 as GGUF has them; f32, f16 or bf16 numbers, which become bf16 units; fp8_e4m3 codes. block_scales: a row's fp8 codes are followed, at the next
// multiple of 16 bytes, by an f32 scale for each unit, the same in all rows of a tile.
struct RawFormat { FormatId format; bool block_scales = false; };

// Above this scale (e8m0, 2) a block of mxfp4 that is not all zeros has no place in a unit: E8m0Scales.
constexpr int kMxfp4LargestScale = 128;

// Bytes of a packed weight, 0 when there is no unit for the format (it is then decoded and kept as bf16).
int64_t packed_bytes(RawFormat format, int64_t rows, int64_t cols);

// `raw`: rows on the device, `stride` bytes apart.
void repack(std::byte* units, const std::byte* raw, int64_t stride, RawFormat format, int64_t rows, int64_t cols, cudaStream_t stream);

}  // namespace ridge::cuda
