// What a KV plane's numbers are, for the kernels that write and read pages:
//   K plane of a page  [kv_head][head_dim][page positions]     a vector is 16 positions, so scores need no sums across lanes
//   V plane of a page  [kv_head][page positions][v_dim]        a vector is 16 dimensions of one position
//   keys without values lie as V does (kv_rows.h)
//   fp8_e4m3: codes as above, then scales f32 [kv_head][page positions] (KvRef::scales)
#pragma once
#include "backend/kv_spec.h"
#include "cpu/simd/vocabulary.h"

namespace ridge::cpu::RIDGE_ISA_NS {

struct KvF32 {
  using Bits = float;
  static F load16(const float* p) { return load(p); }
  static void store16(float* p, F x) { store(p, x); }
};
struct KvF16 {
  using Bits = uint16_t;
  static F load16(const uint16_t* p) { return load_f16(p); }
  static void store16(uint16_t* p, F x) { store_f16(p, x); }
};
struct KvBf16 {
  using Bits = uint16_t;
  static F load16(const uint16_t* p) { return load_bf16(p); }
  static void store16(uint16_t* p, F x) { store_bf16(p, x); }
};
// Codes: what they stand for is theirs times the scale of position and head.
struct KvFp8 {
  using Bits = uint8_t;
  static F load16(const uint8_t* p) { return load_e4m3(p); }
};

// What latent attention and compressed entries know; plain attention knows fp8_e4m3 as well.
inline bool is_kv_format(FormatId f) { return f == FormatId::f32 || f == FormatId::f16 || f == FormatId::bf16; }

// fn(KvF32{}) or fn(KvF16{}) or fn(KvBf16{}).
template <class Fn>
inline void with_kv_format(FormatId f, Fn&& fn) {
  if (f == FormatId::f32) fn(KvF32{});
  else if (f == FormatId::f16) fn(KvF16{});
  else fn(KvBf16{});
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
