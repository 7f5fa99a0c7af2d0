// Where each number of a GGUF tensor lies in Hugging Face's tensor. Tensors are seen as [rows, cols], outer dimensions flattened into rows, a vector as one row.
//
// The writer gathers along it, the reader scatters: both directions of a change are one formula.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "files/gguf/architecture.h"

namespace ridge {

struct Place {
  int64_t row, col;
};

struct GgufLayout {
  std::vector<int64_t> gguf_shape, hf_shape;             // outermost first
  bool same_order = true;                                // the bytes are the same, only the shape differs
  bool whole_rows = true;                                // rows move, numbers within them do not
  std::function<Place(int64_t row, int64_t col)> place;  // of a GGUF number, in Hugging Face's tensor; empty when same_order
};

// Throws Error naming `name` when the shape does not divide as the configuration says.
GgufLayout layout_from_hf(Change change, const std::vector<int64_t>& hf_shape, const Json& config, const std::string& name);
GgufLayout layout_from_gguf(Change change, const std::vector<int64_t>& gguf_shape, const Json& config, const std::string& name);

float to_gguf(Numbers numbers, float x);
float from_gguf(Numbers numbers, float x);

// The file's row that is Hugging Face's row r, for heads of d rows of which the first `rotated` are; and the inverse.
inline int64_t interleaved_row(int64_t r, int64_t d, int64_t rotated) {
  const int64_t j = r % d, half = rotated / 2;
  return j >= rotated ? r : r - j + (j < half ? 2 * j : 2 * (j - half) + 1);
}
inline int64_t deinterleaved_row(int64_t r, int64_t d, int64_t rotated) {
  const int64_t j = r % d, half = rotated / 2;
  return j >= rotated ? r : r - j + (j % 2 == 0 ? j / 2 : half + j / 2);
}

}  // namespace ridge
