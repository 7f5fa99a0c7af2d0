// A view of a two-dimensional tensor: rows of `cols` numbers, `stride` bytes apart. It never owns, so a column slice of a fused projection is a Tensor too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/format.h"

namespace ridge {

struct Tensor {
  std::byte* data = nullptr;
  FormatId format = FormatId::f32;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;                       // bytes from one row to the next

  explicit operator bool() const { return data != nullptr; }
  std::byte* row(int64_t r) const { return data + r * stride; }
  template <class T> T* row_as(int64_t r) const { return reinterpret_cast<T*>(row(r)); }
  float* f32(int64_t r = 0) const { return row_as<float>(r); }
  int64_t bytes() const { return rows * row_bytes(format, cols); }
  Tensor slice_rows(int64_t first, int64_t n) const { return {row(first), format, n, cols, stride}; }
  Tensor slice_cols(int64_t first, int64_t n) const { return {data + row_bytes(format, first), format, rows, n, stride}; }
};

inline Tensor view(void* data, FormatId f, int64_t rows, int64_t cols) {
  return {static_cast<std::byte*>(data), f, rows, cols, row_bytes(f, cols)};
}

// A weight as its file has it, in memory that the file maps: planes of codes, scales and so on. Most formats have `codes` alone.
// `codes` is [rows, cols] with rows = output features. For nvfp4 as published in safetensors (two nibbles a byte, e4m3 scale per 16, one f32 scale):
// codes u8 [rows, cols/2], scales fp8_e4m3 [rows, cols/16], scale. For nvfp4 as GGUF has it: codes in format nvfp4, scale from its companion tensor.
struct StoredWeight {
  std::string name;
  FormatId format = FormatId::f32;          // what the codes mean once the planes are put together
  int64_t rows = 0, cols = 0;
  Tensor codes, scales, zeros, index;
  float scale = 1.0f;
  bool transposed = false;                  // codes are [cols, rows] (GPT-2's Conv1D); plain number formats only
};

// Row r of a stored weight as floats (r counts output features).
void decode_stored_row(float* out, const StoredWeight& w, int64_t r);

}  // namespace ridge
