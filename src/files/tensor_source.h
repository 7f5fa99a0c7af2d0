// A tensor on its way into a file: its rows are produced one at a time when the writer asks, so that a model larger than memory can be written.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "files/weight_file.h"

namespace ridge {

struct TensorSource {
  std::string name;                         // Hugging Face's
  FormatId format = FormatId::f32;
  std::vector<int64_t> shape;               // outermost first, [out features, in features]; a vector has one dimension
  float scale = 1.0f;                       // every number is multiplied by it (nvfp4's tensor-wide scale); written as a companion tensor unless 1
  std::function<void(std::byte* out, int64_t row)> encode_row;      // row_bytes(format, shape.back()) bytes; rows are asked for in any order
  std::function<void(float* out, int64_t row)> decode_row;          // the numbers before they are rounded to `format`; empty: those that encode_row gives
  bool rows_as_stored = false;              // came from planes of blocks: rows are outputs, whatever the name says of plain numbers

  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;
  uint64_t bytes() const;
  void numbers_of_row(float* out, int64_t row) const;               // `scale` included
};

// n numbers in a format; `scale` is what nvfp4's blocks are to be multiplied by.
void encode_numbers(std::byte* out, const float* x, int64_t n, FormatId to, float scale);

// The tensors of a model proper: without those that only say how to read another (scales, rope factors), and nvfp4 planes under their weight's name.
std::vector<TensorInfo> model_tensors(const WeightFile& file);

// A tensor of `file` in another format (or its own: bytes are copied). Vectors and what does not divide into blocks of `to` keep their format, or become f32
// when nothing can write it. For nvfp4 the weight is read once beforehand, for its tensor-wide scale. `file` must outlive the source.
TensorSource converted(const WeightFile& file, const TensorInfo& info, FormatId to);

// The numbers themselves, as f32.
TensorSource f32_source(std::string name, std::vector<int64_t> shape, std::vector<float> values);

}  // namespace ridge
