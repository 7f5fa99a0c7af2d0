#include "cuda/repack.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/lib/fp8_unit.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

struct Raw { const std::byte* data; int64_t stride, rows, cols; FormatId format; };

// Input k of lane quarter q: operand t of the unit, its i-th of four (lib/unit.h).
template <bool kHalves>
__device__ int input_of(int q, int t, int i) { return kHalves ? t / 2 * 32 + q * 8 + t % 2 * 4 + i : q * 16 + t * 4 + i; }

__device__ float number(const Raw& raw, int64_t row, int64_t k) {
  if (row >= raw.rows || k >= raw.cols) return 0.0f;
  const std::byte* p = raw.data + row * raw.stride;
  if (raw.format == FormatId::f32) return reinterpret_cast<const float*>(p)[k];
  if (raw.format == FormatId::f16) return __half2float(reinterpret_cast<const __half*>(p)[k]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(p)[k]);
}

__global__ void pack_bf16_units(std::byte* units, Raw raw, int n_units) {
  const int row = threadIdx.x / 8, chunk = threadIdx.x % 8, unit = blockIdx.x;
  const int64_t tile = blockIdx.y;
  uint32_t pairs[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int64_t k = unit * kUnit + input_of<false>(q, chunk / 2, chunk % 2 * 2);
    pairs[q] = pack_bf16(number(raw, tile * kTileRows + row, k), number(raw, tile * kTileRows + row, k + 1));
  }
  *reinterpret_cast<uint4*>(units + (tile * n_units + unit) * Bf16Unit::kBytes + Bf16Unit::place(row, chunk)) = {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Code k of a GGUF row: the nibble or byte as stored.
__device__ uint32_t code(const Raw& raw, int64_t row, int64_t k) {
  if (row >= raw.rows || k >= raw.cols) return raw.format == FormatId::q4_0 || raw.format == FormatId::q4_1 ? 8 : 0;
  const std::byte* p = raw.data + row * raw.stride;
  if (raw.format == FormatId::fp8_e4m3) return uint32_t(p[k]);
  if (raw.format == FormatId::q8_0) return uint32_t(p[k / 32 * 34 + 2 + k % 32]);
  if (raw.format == FormatId::q4_0 || raw.format == FormatId::q4_1 || raw.format == FormatId::mxfp4) {       // 16 bytes behind the scale and the minimum
    const int before = raw.format == FormatId::q4_0 ? 2 : raw.format == FormatId::q4_1 ? 4 : 1;
    const uint32_t byte = uint32_t(p[k / 32 * (before + 16) + before + k % 16]);
    return k % 32 < 16 ? byte & 15 : byte >> 4;
  }
  // nvfp4: 4 scales, then per 16 numbers 8 bytes: low nibbles first. Under a scale of zero (0x7F reads as zero, too) every code is zero (E4m3Scales::place).
  const uint32_t scale = uint32_t(p[k / 64 * 36 + k % 64 / 16]) & 0x7F;
  if (scale == 0 || scale == 0x7F) return 0;
  const uint32_t byte = uint32_t(p[k / 64 * 36 + 4 + k % 64 / 16 * 8 + k % 8]);
  return k % 16 < 8 ? byte & 15 : byte >> 4;
}

// A lane's codes of four bits of a unit: e2m1 where its inputs are contiguous, integers where there are halves.
template <bool kHalves>
__device__ uint4 code_words(const Raw& raw, int64_t tile, int unit, int lane) {
  uint32_t words[4] = {0, 0, 0, 0};
  for (int t = 0; t < 4; ++t)
    for (int p = 0; p < 4; ++p)
      for (int i = 0; i < 2; ++i) {
        const int64_t row = tile * kTileRows + lane / 4 + (p % 2) * 8;
        const uint32_t c = code(raw, row, unit * kUnit + input_of<kHalves>(lane % 4, t, p / 2 * 2 + i));
        if constexpr (kHalves) words[t] |= c << (4 * (p + 4 * i));
        else Nvfp4Unit::place(words, c, t, p, i);
      }
  return {words[0], words[1], words[2], words[3]};
}

__global__ void pack_code_units(std::byte* units, Raw raw, int n_units) {
  const int lane = threadIdx.x, unit = blockIdx.x;
  const int64_t tile = blockIdx.y;
  const int g = lane / 4, q = lane % 4;
  // The scale (or, 2 bytes on, the minimum) of row lane % 16 and half lane / 16.
  const auto scale_bits = [&](int offset) {
    const int64_t row = tile * kTileRows + lane % 16, block = unit * 2 + lane / 16;
    if (row >= raw.rows || block * 32 >= raw.cols) return uint16_t{0};
    const int block_bytes = raw.format == FormatId::q8_0 ? 34 : raw.format == FormatId::q4_1 ? 20 : 18;
    return *reinterpret_cast<const uint16_t*>(raw.data + row * raw.stride + block * block_bytes + offset);
  };
  if (raw.format == FormatId::nvfp4 || raw.format == FormatId::mxfp4) {
    const bool nv = raw.format == FormatId::nvfp4;
    std::byte* to = units + (tile * n_units + unit) * (nv ? Nvfp4Unit::kBytes : Mxfp4Unit::kBytes);
    reinterpret_cast<uint4*>(to)[lane] = code_words<false>(raw, tile, unit, lane);
    for (int r = 0; r < 2; ++r) {
      const int64_t row = tile * kTileRows + g + 8 * r;
      const std::byte* p = raw.data + row * raw.stride;
      uint32_t scale = 0;
      if (row < raw.rows && unit * kUnit + q * 16 < raw.cols) scale = nv ? E4m3Scales::place(uint32_t(p[unit * 36 + q])) : E8m0Scales::place(uint32_t(p[(unit * 2 + q / 2) * 17]));
      if (nv || q % 2 == 0) to[512 + 2 * (nv ? E4m3Scales::index(lane) : E8m0Scales::index(lane)) + r] = std::byte(scale);
    }
  } else if (raw.format == FormatId::q4_0 || raw.format == FormatId::q4_1) {
    std::byte* to = units + (tile * n_units + unit) * (raw.format == FormatId::q4_0 ? Q4Unit::kBytes : Q41Unit::kBytes);
    reinterpret_cast<uint4*>(to)[lane] = code_words<true>(raw, tile, unit, lane);
    reinterpret_cast<uint16_t*>(to + 512)[lane] = scale_bits(0);
    if (raw.format == FormatId::q4_1) reinterpret_cast<uint16_t*>(to + Q4Unit::kBytes)[lane] = scale_bits(2);
  } else {
    std::byte* to = units + (tile * n_units + unit) * Q8Unit::kBytes;
    for (int t = 0; t < 4; ++t) {                                            // operand t of four: half t / 2
      uint32_t words[2] = {0, 0};
      for (int p = 0; p < 4; ++p)
        for (int i = 0; i < 2; ++i) {
          const int64_t row = tile * kTileRows + g + (p % 2) * 8;
          words[p / 2] |= (code(raw, row, unit * kUnit + input_of<true>(q, t, p / 2 * 2 + i)) ^ 0x80) << (8 * (i * 2 + p % 2));
        }
      reinterpret_cast<uint2*>(to + t / 2 * 512)[lane * 2 + t % 2] = {words[0], words[1]};
    }
    reinterpret_cast<uint16_t*>(to + 1024)[lane] = scale_bits(0);
  }
}

template <bool kBlocks>
__global__ void pack_fp8_units(std::byte* units, Raw raw, int n_units) {
  const int lane = threadIdx.x, unit = blockIdx.x;
  const int64_t tile = blockIdx.y;
  std::byte* to = units + (tile * n_units + unit) * Fp8Unit<kBlocks>::kBytes;
  for (int h = 0; h < 2; ++h) {
    uint32_t words[4] = {0, 0, 0, 0};
    for (int w = 0; w < 4; ++w)
      for (int pair = 0; pair < 2; ++pair)
        for (int i = 0; i < 2; ++i) {
          const int64_t row = tile * kTileRows + lane / 4 + pair * 8;
          words[w] |= Fp8Unit<kBlocks>::place(code(raw, row, unit * kUnit + input_of<false>(lane % 4, 2 * h + w / 2, w % 2 * 2 + i)), pair, i);
        }
    reinterpret_cast<uint4*>(to)[h * 32 + lane] = {words[0], words[1], words[2], words[3]};
  }
  if (kBlocks && lane < 4) {
    const std::byte* scales = raw.data + tile * kTileRows * raw.stride + (raw.cols + 15) / 16 * 16;
    reinterpret_cast<float*>(to + Fp8Unit<kBlocks>::kCodeBytes)[lane] = reinterpret_cast<const float*>(scales)[unit];
  }
}

static_assert(E8m0Scales::kLargest == kMxfp4LargestScale);

int unit_bytes(RawFormat raw) {
  switch (raw.format) {
    case FormatId::f32: case FormatId::f16: case FormatId::bf16: return Bf16Unit::kBytes;
    case FormatId::nvfp4: return Nvfp4Unit::kBytes;
    case FormatId::mxfp4: return Mxfp4Unit::kBytes;
    case FormatId::q8_0: return Q8Unit::kBytes;
    case FormatId::q4_0: return Q4Unit::kBytes;
    case FormatId::q4_1: return Q41Unit::kBytes;
    case FormatId::fp8_e4m3: return raw.block_scales ? Fp8Unit<true>::kBytes : Fp8Unit<false>::kBytes;
    default: return 0;
  }
}

}  // namespace

int64_t packed_bytes(RawFormat format, int64_t rows, int64_t cols) {
  return (rows + kTileRows - 1) / kTileRows * ((cols + kUnit - 1) / kUnit) * unit_bytes(format);
}

void repack(std::byte* units, const std::byte* raw, int64_t stride, RawFormat format, int64_t rows, int64_t cols, cudaStream_t stream) {
  const int n_units = int((cols + kUnit - 1) / kUnit);
  const int64_t n_tiles = (rows + kTileRows - 1) / kTileRows;
  const Raw from{raw, stride, rows, cols, format.format};
  // The grid's second dimension ends at 65535.
  for (int64_t first = 0; first < n_tiles; first += 65535) {
    const dim3 grid(n_units, unsigned(n_tiles - first < 65535 ? n_tiles - first : 65535));
    Raw part = from;
    part.data += first * kTileRows * stride;
    part.rows -= first * kTileRows;
    std::byte* to = units + first * n_units * unit_bytes(format);
    constexpr LaunchAs kAlone{.split = Split::driver, .overlaps = false};
    if (unit_bytes(format) == Bf16Unit::kBytes) launch_kernel_as(kAlone, pack_bf16_units, grid, 128, 0, stream, to, part, n_units);
    else if (format.format == FormatId::fp8_e4m3) launch_kernel_as(kAlone, format.block_scales ? pack_fp8_units<true> : pack_fp8_units<false>, grid, 32, 0, stream, to, part, n_units);
    else launch_kernel_as(kAlone, pack_code_units, grid, 32, 0, stream, to, part, n_units);
  }
}

}  // namespace ridge::cuda
