#include "cuda/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "cuda/lib/device.h"
#include "cuda/repack.h"
#include "formats/mxfp4.h"

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

// What is seen in a weight's codes on their way.
struct Findings {
  std::atomic<bool> nan = false;                                            // fp8
  std::atomic<bool> beyond = false;                                         // mxfp4: a scale that units cannot hold
};

// A row of mxfp4 in GGUF's blocks (formats/mxfp4.h), looked through. Scales of zeros do not count.
void look_for_large_scales(const std::byte* row, int64_t n_blocks, Findings& found) {
  const auto* blocks = reinterpret_cast<const BlockMxfp4*>(row);
  bool large = false;
  for (int64_t b = 0; b < n_blocks; ++b)
    large |= blocks[b].e > kMxfp4LargestScale && std::any_of(blocks[b].q, blocks[b].q + 16, [](uint8_t pair) { return (pair & 0x77) != 0; });
  if (large) found.beyond = true;
}

// A row of published mxfp4 as GGUF's blocks, as below.
void mxfp4_blocks_of_planes(std::byte* to, const StoredWeight& w, int64_t row) {
  const auto* codes = w.codes.row_as<uint8_t>(row);
  const auto* scales = w.scales.row_as<uint8_t>(row);
  auto* blocks = reinterpret_cast<BlockMxfp4*>(to);
  for (int64_t b = 0; b < w.cols / 32; ++b) {
    const uint8_t* pairs = codes + 16 * b;
    const auto number = [&](int i) { return (pairs[i / 2] >> (i % 2 * 4)) & 15; };
    blocks[b].e = scales[b];
    for (int j = 0; j < 16; ++j) blocks[b].q[j] = uint8_t(number(j) | number(j + 16) << 4);
  }
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

// Decoded rows, kept as bf16.
Source numbers_of(const StoredWeight& w) {
  return {{FormatId::f32}, w.cols * 4, [&w](std::byte* to, int64_t row) { decode_stored_row(reinterpret_cast<float*>(to), w, row); }, true};
}

Source source_of(const StoredWeight& w, Findings& found) {
  const bool whole = !w.transposed && !w.zeros && !w.index;
  const auto copied = [&w](int64_t n_bytes) { return [&w, n_bytes](std::byte* to, int64_t row) { std::memcpy(to, w.codes.row(row), size_t(n_bytes)); }; };
  if (whole && w.format == FormatId::nvfp4 && w.codes.format == FormatId::u8 && w.scales && w.cols % 16 == 0 && scales_fit(w))
    return {{FormatId::nvfp4}, (w.cols + 63) / 64 * 36, [&w](std::byte* to, int64_t row) { nvfp4_blocks_of_planes(to, w, row); }};
  const bool mxfp4_planes = w.codes.format == FormatId::u8 && w.scales && w.scales.cols == w.cols / 32;
  if (whole && w.format == FormatId::mxfp4 && w.cols % 32 == 0 && (mxfp4_planes || (w.codes.format == FormatId::mxfp4 && !w.scales))) {
    const int64_t n_bytes = row_bytes(FormatId::mxfp4, w.cols);
    return {{FormatId::mxfp4}, n_bytes, [&w, &found, n_bytes, mxfp4_planes](std::byte* to, int64_t row) {
              if (mxfp4_planes) mxfp4_blocks_of_planes(to, w, row);
              else std::memcpy(to, w.codes.row(row), size_t(n_bytes));
              look_for_large_scales(to, w.cols / 32, found);
            }};
  }
  if (whole && w.format == FormatId::fp8_e4m3 && w.codes.format == FormatId::fp8_e4m3) {
    const Fp8Scales scales = fp8_scales_of(w);
    const int64_t padded = (w.cols + 15) / 16 * 16, n_units = (w.cols + 63) / 64;
    const auto fill = [&w, &found, padded, n_units, blocks = scales == Fp8Scales::blocks](std::byte* to, int64_t row) {
      std::memcpy(to, w.codes.row(row), size_t(w.cols));
      bool bad = false;
      for (int64_t i = 0; i < w.cols; ++i) bad |= (uint8_t(to[i]) & 0x7F) == 0x7F;
      if (bad) found.nan = true;
      for (int64_t u = 0; u < n_units && blocks; ++u) reinterpret_cast<float*>(to + padded)[u] = w.scales.f32(row)[u / 2];
    };
    if (scales == Fp8Scales::blocks) return {{FormatId::fp8_e4m3, true}, padded + 4 * n_units, fill};
    if (scales != Fp8Scales::other) return {{FormatId::fp8_e4m3}, padded, fill};
  }
  const bool as_stored = whole && !w.scales && w.codes.format == w.format && w.format != FormatId::fp8_e4m3 && w.format != FormatId::mxfp4 && packed_bytes({w.format}, 1, 1) > 0;
  if (as_stored) return {{w.format}, row_bytes(w.format, w.cols), copied(row_bytes(w.format, w.cols))};
  return numbers_of(w);
}

}  // namespace

Weight WeightStore::prepare(const StoredWeight& stored, Arithmetic arithmetic) {
  if (check_f32_) {
    Weight w{.format = stored.format, .arithmetic = arithmetic, .rows = stored.rows, .cols = stored.cols, .name = stored.name};
    w.arithmetic.x = FormatId::f32;
    w.packed = upload_decoded(stored);                                       // decode_stored_row has the scale in
    w.bytes = w.packed.bytes();
    return w;
  }
  const auto packed = [&](const Source& source) {
    Weight w{.format = is_plain(source.raw.format) ? FormatId::bf16 : source.raw.format, .arithmetic = {.x = FormatId::bf16, .k_block = source.raw.block_scales ? 128 : 32},
             .rows = stored.rows, .cols = stored.cols, .name = stored.name};
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
    return w;
  };
  Findings found;
  const Weight w = packed(source_of(stored, found));
  // Looked for on the way, not beforehand, which would read the file twice; the price is the memory of the first attempt where a weight has such scales.
  if (found.beyond) return packed(numbers_of(stored));
  if (found.nan) fail("tensor {} holds fp8 codes that are not numbers (0x7F or 0xFF): the file is damaged, or was quantized with an overflow", stored.name);
  return w;
}

Weight WeightStore::prepare_table(const StoredWeight& stored) {
  Weight w{.format = stored.format, .rows = stored.rows, .cols = stored.cols, .name = stored.name};
  constexpr FormatId kReadable[] = {FormatId::q8_0, FormatId::q4_0, FormatId::q4_1, FormatId::nvfp4, FormatId::mxfp4, FormatId::fp8_e4m3};
  const bool readable = is_plain(stored.format) || std::ranges::find(kReadable, stored.format) != std::end(kReadable);
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
