// Rows of stored weights as floats, whatever planes they are made of. Slow and plain: the truth for tests, quantizers and embeddings that nothing else reads.
#include "formats/format.h"
#include "base/check.h"
#include "tensor/tensor.h"

#include "base/float_types.h"
#include "formats/mxfp4.h"

namespace ridge {
namespace {

// Published nvfp4: byte j of a row of codes holds numbers 2j (low) and 2j + 1 (high), one e4m3 scale per 16 numbers.
void decode_nvfp4_planes(float* out, const StoredWeight& w, int64_t r) {
  const auto* codes = w.codes.row_as<uint8_t>(r);
  const auto* scales = w.scales.row_as<uint8_t>(r);
  for (int64_t i = 0; i < w.cols; ++i) out[i] = kE2m1[(codes[i / 2] >> (i % 2 * 4)) & 15] * e4m3_to_f32(scales[i / 16]);
}

// Published mxfp4 (gpt-oss): nibbles in the order of nvfp4's, one e8m0 scale per 32 numbers.
void decode_mxfp4_planes(float* out, const StoredWeight& w, int64_t r) {
  const auto* codes = w.codes.row_as<uint8_t>(r);
  const auto* scales = w.scales.row_as<uint8_t>(r);
  for (int64_t i = 0; i < w.cols; ++i) out[i] = static_cast<float>(kE2m1Doubled[(codes[i / 2] >> (i % 2 * 4)) & 15]) * e8m0_half(scales[i / 32]);
}

// Plain codes whose scales are f32: one for the row, or one for each 128 numbers of it.
void scale_row(float* out, const StoredWeight& w, int64_t r) {
  const int64_t n = w.scales.cols == 1 ? w.cols : 128;
  for (int64_t i = 0; i < w.cols; ++i) out[i] *= w.scales.f32(r)[i / n];
}

void decode_column(float* out, const StoredWeight& w, int64_t r) {
  const Format& f = format(w.codes.format);
  CHECK_EQ(f.block_elems, 1);
  for (int64_t i = 0; i < w.cols; ++i) f.decode_row(out + i, w.codes.row(i) + r * f.block_bytes, 1);
}

}  // namespace

void decode_stored_row(float* out, const StoredWeight& w, int64_t r) {
  CHECK(r >= 0 && r < w.rows);
  if (w.format == FormatId::nvfp4 && w.scales) {
    decode_nvfp4_planes(out, w, r);
  } else if (w.format == FormatId::mxfp4 && w.scales) {
    decode_mxfp4_planes(out, w, r);
  } else if (w.transposed) {
    decode_column(out, w, r);
  } else {
    CHECK(format(w.codes.format).readable);
    format(w.codes.format).decode_row(out, w.codes.row(r), w.cols);
    if (w.scales) scale_row(out, w, r);
  }
  if (w.scale != 1.0f)
    for (int64_t i = 0; i < w.cols; ++i) out[i] *= w.scale;
}

}  // namespace ridge
