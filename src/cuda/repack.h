// From a file's planes to the units of lib/unit.h, on the device: raw rows are copied in and rearranged there, at the speed of the bus.
#pragma once
#include <cuda_runtime.h>

#include "backend/op.h"

namespace ridge::cuda {

// Bytes of a packed weight, 0 when there is no unit for the format (it is then decoded and kept as bf16).
int64_t packed_bytes(FormatId format, int64_t rows, int64_t cols);

// `raw`: the file's rows on the device, `stride` bytes apart; q8_0, q4_0, nvfp4 as GGUF has them, or f32/f16/bf16 numbers (stored as bf16 units).
void repack(std::byte* units, const std::byte* raw, int64_t stride, FormatId format, int64_t rows, int64_t cols, cudaStream_t stream);

}  // namespace ridge::cuda
