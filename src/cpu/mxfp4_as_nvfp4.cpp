#include "cpu/mxfp4_as_nvfp4.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "formats/mxfp4.h"

namespace ridge::cpu {
namespace {

constexpr int kOctaves = 18, kLargest = 8;   // e4m3 has 2^(8 - 17) to 2^8

uint8_t e4m3_of_power(int exponent) {        // of 2^exponent
  return static_cast<uint8_t>(exponent >= -6 ? (exponent + 7) << 3 : 1 << (exponent + 9));
}

}  // namespace

std::optional<Nvfp4Planes> mxfp4_as_nvfp4(const StoredWeight& w) {
  const int64_t n = w.cols / 32;
  const bool planes = static_cast<bool>(w.scales);
  const auto block = [&](int64_t r, int64_t b) -> const BlockMxfp4& { return w.codes.row_as<const BlockMxfp4>(r)[b]; };
  const auto exponent = [&](int64_t r, int64_t b) -> int { return planes ? w.scales.row_as<const uint8_t>(r)[b] : block(r, b).e; };
  const auto is_zero = [&](int64_t r, int64_t b) {
    const uint8_t* q = planes ? w.codes.row_as<const uint8_t>(r) + 16 * b : block(r, b).q;
    return std::all_of(q, q + 16, [](uint8_t byte) { return (byte & 0x77) == 0; });
  };

  int top = 0;
  for (int64_t r = 0; r < w.rows; ++r)
    for (int64_t b = 0; b < n; ++b)
      if (exponent(r, b) > top && !is_zero(r, b)) top = exponent(r, b);
  if (top < kLargest + 2 || top == 255) return std::nullopt;                // the scale of the whole would be no normal number

  Nvfp4Planes out{.codes = {}, .scales = std::vector<uint8_t>(static_cast<size_t>(w.rows * n * 2)), .weight = {}};
  for (int64_t r = 0; r < w.rows; ++r)
    for (int64_t b = 0; b < n; ++b) {
      const int below = top - exponent(r, b);
      if (below < 0 || below >= kOctaves) {
        if (!is_zero(r, b)) return std::nullopt;
        continue;
      }
      std::fill_n(out.scales.begin() + (r * n + b) * 2, 2, e4m3_of_power(kLargest - below));
    }
  if (!planes) {
    out.codes.resize(static_cast<size_t>(w.rows * n * 16));
    for (int64_t r = 0; r < w.rows; ++r)
      for (int64_t b = 0; b < n; ++b)
        for (int j = 0; j < 16; ++j) {                                      // numbers 2j and 2j + 1 of the block
          const auto nibble = [&](int k) { return block(r, b).q[k % 16] >> (k / 16 * 4) & 15; };
          out.codes[static_cast<size_t>((r * n + b) * 16 + j)] = static_cast<uint8_t>(nibble(2 * j) | nibble(2 * j + 1) << 4);
        }
  }
  out.weight = {.name = w.name, .format = FormatId::nvfp4, .rows = w.rows, .cols = w.cols};
  out.weight.codes = planes ? w.codes : view(out.codes.data(), FormatId::u8, w.rows, n * 16);
  out.weight.scales = view(out.scales.data(), FormatId::fp8_e4m3, w.rows, n * 2);
  out.weight.scale = w.scale * std::ldexp(1.0f, top - 127 - kLargest);
  return out;
}

}  // namespace ridge::cpu
