// The formats a tensor may be stored in. A format is one header of this folder: its layout drawn, encode, decode (the truth) and what the kernels need of it.
// This header is the index: names, block sizes, and decode/encode of whole rows through the registry (registry.cpp), for code that is not in a hurry.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ridge {

enum class FormatId : uint8_t {
  f32, f16, bf16, f64, i8, i16, i32, i64, u8, u16, u32, u64, boolean, fp8_e4m3, fp8_e5m2,    // one number a block
  q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, mxfp4, nvfp4,                    // blocks along a row
  unknown,                                                                                     // a type we can list but not read
};

struct Format {
  FormatId id;
  std::string_view name;                    // as flags and tables spell it
  int block_elems;                          // numbers along a row that share a block (1 for plain types)
  int block_bytes;
  bool readable;                            // decode_row works
  bool writable;                            // encode_row works (f32 f16 bf16 q8_0 q4_0 q4_1 q6_k nvfp4)
  void (*decode_row)(float* out, const std::byte* blocks, int64_t n);          // n is a multiple of block_elems
  void (*encode_row)(std::byte* blocks, const float* x, int64_t n);
};

const Format& format(FormatId id);
std::optional<FormatId> find_format(std::string_view name);
std::span<const Format> all_formats();

inline int64_t row_bytes(FormatId id, int64_t n) { return n / format(id).block_elems * format(id).block_bytes; }

}  // namespace ridge
