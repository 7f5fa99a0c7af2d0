// Planes that lie as rows, [entries of the page][head_dim]: keys without values (latent attention, index keys, compressed entries and what they are made of). An
// entry is one run of memory, so any selection of them can be read.
#pragma once
#include "backend/step.h"
#include "cpu/kernels/kv_formats.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

inline int64_t round16(int64_t n) { return (n + 15) / 16 * 16; }

// Entry i of plane 0 of a sequence's KV.
inline std::byte* kv_row(const KvRef& kv, const Step& step, const StepSeq& seq, int64_t i) {
  const KvPlane& plane = kv.planes[0];
  const EntryPlace place = entry_place(i, plane.every, kv.page_size);
  const int64_t size = plane.format == FormatId::f32 ? 4 : 2;
  return kv.plane(0, step.pages()[seq.first_page[kv.group] + place.page]) + place.slot * size * plane.n_heads * plane.head_dim;
}

// n numbers of a row as floats; what follows up to a multiple of 16 becomes 0.
inline void read_row(float* out, const std::byte* row, FormatId format, int n) {
  with_kv_format(format, [&](auto kv) {
    using Kv = decltype(kv);
    const auto* bits = reinterpret_cast<const typename Kv::Bits*>(row);
    int i = 0;
    for (; i + 16 <= n; i += 16) store(out + i, Kv::load16(bits + i));
    if (i == n) return;
    typename Kv::Bits tail[16] = {};
    for (int j = i; j < n; ++j) tail[j - i] = bits[j];
    store(out + i, Kv::load16(tail));
  });
}

inline void write_row(std::byte* row, const float* x, FormatId format, int n) {
  with_kv_format(format, [&](auto kv) {
    using Kv = decltype(kv);
    auto* bits = reinterpret_cast<typename Kv::Bits*>(row);
    int i = 0;
    for (; i + 16 <= n; i += 16) Kv::store16(bits + i, load(x + i));
    if (i == n) return;
    typename Kv::Bits tail[16];
    Kv::store16(tail, load_n(x + i, n - i));
    for (int j = i; j < n; ++j) bits[j] = tail[j - i];
  });
}

// Heads [first, first + n) of a row of q as columns: out[d][h], `stride` numbers from one d to the next; heads beyond n are 0.
inline void queries_as_columns(float* out, const float* q, int head_dim, int first, int n, int64_t stride) {
  for (int d = 0; d < head_dim; ++d) {
    for (int h = 0; h < n; ++h) out[d * stride + h] = q[int64_t{first + h} * head_dim + d];
    for (int64_t h = n; h < stride; ++h) out[d * stride + h] = 0.0f;
  }
}

}  // namespace
}  // namespace ridge::cpu::RIDGE_ISA_NS
