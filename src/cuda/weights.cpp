#include "cuda/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "cuda/lib/device.h"
#include "cuda/repack.h"

namespace ridge::cuda {
namespace {

bool is_plain(FormatId f) { return f == FormatId::f32 || f == FormatId::f16 || f == FormatId::bf16; }

// Rows as repack() takes them, and how one is made of the stored planes.
struct Source {
  RawFormat raw{.format = FormatId::f32};
  int64_t row_bytes = 0;
  Uploader::Fill fill;
  bool decoded = false;                                                     // with every scale in
};

// e4m3 scales without sign and without NaN: those of every nvfp4 weight that a quantizer wrote.
bool scales_fit(const StoredWeight& w) {
  for (int64_t r = 0; r < w.rows; ++r) {
    const auto* scales = w.scales.row_as<uint8_t>(r);
    uint8_t largest = 0;
    for (int64_t i = 0; i < w.scales.cols; ++i) largest = std::max(largest, scales[i]);
    if (largest >= 0x7F) return false;
  }
  return true;
}

// A row of published nvfp4 (neighbours share a byte, scales in a plane of their own) as GGUF's blocks: formats/nvfp4.h.
void nvfp4_blocks_of_planes(std::byte* to, const StoredWeight& w, int64_t row) {
  const auto* codes = w.codes.row_as<uint8_t>(row);
  const auto* scales = w.scales.row_as<uint8_t>(row);
  auto* block = reinterpret_cast<uint8_t*>(to);
  for (int64_t k = 0; k < w.cols; k += 64, block += 36)
    for (int64_t g = 0; g < 4; ++g) {
      const bool there = k + 16 * g < w.cols;
      block[g] = there ? scales[k / 16 + g] : 0;
      const uint8_t* pairs = codes + k / 2 + 8 * g;                         // numbers 2j and 2j + 1 of the group
      for (int j = 0; j < 8; ++j) {
        const auto number = [&](int i) { return (pairs[i / 2] >> (i % 2 * 4)) & 15; };
        block[4 + 8 * g + j] = there ? uint8_t(number(j) | number(j + 8) << 4) : 0;
      }
    }
}

enum class Fp8Scales { none, rows, blocks, other };

// Blocks of 128 x 128, cut so that the 16 rows of a tile have the same scales: one f32 for each 128 inputs.
Fp8Scales fp8_scales_of(const StoredWeight& w) {
  if (!w.scales) return Fp8Scales::none;
  if (w.scales.format != FormatId::f32) return Fp8Scales::other;
  if (w.scales.cols == 1) return Fp8Scales::rows;
  if (w.scales.cols != (w.cols + 127) / 128) return Fp8Scales::other;
  for (int64_t r = 0; r < w.rows; ++r)
    if (std::memcmp(w.scales.row(r), w.scales.row(r / 16 * 16), size_t(w.scales.cols) * 4) != 0) return Fp8Scales::other;
  return Fp8Scales::blocks;
}

Source source_of(const StoredWeight& w, std::atomic<bool>& has_nan) {
  const bool whole = !w.transposed && !w.zeros && !w.index;
  const auto copied = [&w](int64_t n_bytes) { return [&w, n_bytes](std::byte* to, int64_t row) { std::memcpy(to, w.codes.row(row), size_t(n_bytes)); }; };
  if (whole && w.format == FormatId::nvfp4 && w.codes.format == FormatId::u8 && w.scales && w.cols % 16 == 0 && scales_fit(w))
    return {{FormatId::nvfp4}, (w.cols + 63) / 64 * 36, [&w](std::byte* to, int64_t row) { nvfp4_blocks_of_planes(to, w, row); }};
  if (whole && w.format == FormatId::fp8_e4m3 && w.codes.format == FormatId::fp8_e4m3) {
    const Fp8Scales scales = fp8_scales_of(w);
    const int64_t padded = (w.cols + 15) / 16 * 16, n_units = (w.cols + 63) / 64;
    const auto fill = [&w, &has_nan, padded, n_units, blocks = scales == Fp8Scales::blocks](std::byte* to, int64_t row) {
      std::memcpy(to, w.codes.row(row), size_t(w.cols));
      bool bad = false;
      for (int64_t i = 0; i < w.cols; ++i) bad |= (uint8_t(to[i]) & 0x7F) == 0x7F;
      if (bad) has_nan = true;
      for (int64_t u = 0; u < n_units && blocks; ++u) reinterpret_cast<float*>(to + padded)[u] = w.scales.f32(row)[u / 2];
    };
    if (scales == Fp8Scales::blocks) return {{FormatId::fp8_e4m3, true}, padded + 4 * n_units, fill};
    if (scales != Fp8Scales::other) return {{FormatId::fp8_e4m3}, padded, fill};
  }
  const bool as_stored = whole && !w.scales && w.codes.format == w.format && w.format != FormatId::fp8_e4m3 && packed_bytes({w.format}, 1, 1) > 0;
  if (as_stored) return {{w.format}, row_bytes(w.format, w.cols), copied(row_bytes(w.format, w.cols))};
  return {{FormatId::f32}, w.cols * 4, [&w](std::byte* to, int64_t row) { decode_stored_row(reinterpret_cast<float*>(to), w, row); }, true};
}

}  // namespace

Weight WeightStore::prepare(const StoredWeight& stored, Arithmetic arithmetic) {
  Weight w{.format = stored.format, .arithmetic = arithmetic, .rows = stored.rows, .cols = stored.cols};
  if (check_f32_) {
    w.arithmetic.x = FormatId::f32;
    w.packed = upload_decoded(stored);                                       // decode_stored_row has the scale in
    w.bytes = w.packed.bytes();
    return w;
  }
  std::atomic<bool> has_nan = false;
  const Source source = source_of(stored, has_nan);
  w.format = is_plain(source.raw.format) ? FormatId::bf16 : source.raw.format;
  w.arithmetic = {.x = FormatId::bf16, .k_block = source.raw.block_scales ? 128 : 32};
  if (!source.decoded) w.scale = stored.scale;
  w.bytes = packed_bytes(source.raw, w.rows, w.cols);
  w.packed = {allocate_(w.bytes), FormatId::u8, 1, w.bytes, w.bytes};
  if (source.raw.format == FormatId::fp8_e4m3 && !source.raw.block_scales && stored.scales) {
    w.row_scales = upload_row_scales(stored.scales);
    w.bytes += w.rows * 4;
  }
  const int64_t tile_bytes = packed_bytes(source.raw, 16, w.cols);
  uploader_.send(w.rows, source.row_bytes, 16, source.fill, [&](const Uploader::Portion& p) {
    CUDA_TRY(cudaMemcpyAsync(p.raw, p.host, p.bytes, cudaMemcpyHostToDevice, stream_));
    repack(w.packed.data + p.first / 16 * tile_bytes, p.raw, source.row_bytes, source.raw, p.n, w.cols, stream_);
  });
  if (has_nan) fail("tensor {} holds fp8 codes that are not numbers (0x7F or 0xFF): the file is damaged, or was quantized with an overflow", stored.name);
  return w;
}

Weight WeightStore::prepare_table(const StoredWeight& stored) {
  Weight w{.format = stored.format, .rows = stored.rows, .cols = stored.cols};
  const bool readable = is_plain(stored.format) || stored.format == FormatId::q8_0 || stored.format == FormatId::q4_0 || stored.format == FormatId::nvfp4 || stored.format == FormatId::fp8_e4m3;
  if (readable && !stored.transposed && !stored.scales && stored.codes.format == stored.format) {
    const int64_t row = row_bytes(stored.format, stored.cols);
    w.scale = stored.scale;
    w.packed = {allocate_(row * stored.rows), stored.format, stored.rows, stored.cols, row};
    uploader_.send(w.rows, row, 1, [&](std::byte* to, int64_t r) { std::memcpy(to, stored.codes.row(r), size_t(row)); },
                   [&](const Uploader::Portion& p) { CUDA_TRY(cudaMemcpyAsync(w.packed.row(p.first), p.host, p.bytes, cudaMemcpyHostToDevice, stream_)); });
  } else {
    w.packed = upload_decoded(stored);
  }
  w.bytes = w.packed.bytes();
  return w;
}

Tensor WeightStore::upload_decoded(const StoredWeight& stored) {
  const Tensor t = view(allocate_(stored.rows * stored.cols * 4), FormatId::f32, stored.rows, stored.cols);
  uploader_.send(t.rows, t.cols * 4, 1, [&](std::byte* to, int64_t r) { decode_stored_row(reinterpret_cast<float*>(to), stored, r); },
                 [&](const Uploader::Portion& p) { CUDA_TRY(cudaMemcpyAsync(t.row(p.first), p.host, p.bytes, cudaMemcpyHostToDevice, stream_)); });
  return t;
}

Tensor WeightStore::upload_row_scales(const Tensor& scales) {
  const Tensor t = view(allocate_(scales.rows * 4), FormatId::f32, 1, scales.rows);
  uploader_.send(scales.rows, 4, 1, [&](std::byte* to, int64_t r) { std::memcpy(to, scales.row(r), 4); },
                 [&](const Uploader::Portion& p) { CUDA_TRY(cudaMemcpyAsync(t.f32() + p.first, p.host, p.bytes, cudaMemcpyHostToDevice, stream_)); });
  return t;
}

}  // namespace ridge::cuda
