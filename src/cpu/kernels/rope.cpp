// Rotary angles, and the op that rotates q and k and puts k and v into their pages (layouts: kv_formats.h).
#include <math.h>

#include "backend/step.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/kv_formats.h"
#include "formats/kv_fp8.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int64_t kRows = 16;                // token rows of a unit

inline void rotate(float* x, const float* cosines, const float* sines, int n_rot, RopeStyle style, bool back) {
  const int n_pairs = n_rot / 2;
  const float sign = back ? -1.0f : 1.0f;
  if (style == RopeStyle::half) {
    for_lanes(0, n_pairs, [&](int64_t i, int n) {
      const F a = load_n(x + i, n), b = load_n(x + n_pairs + i, n), c = load_n(cosines + i, n), s = mul(load_n(sines + i, n), set1(sign));
      store_n(x + i, sub(mul(a, c), mul(b, s)), n);
      store_n(x + n_pairs + i, add(mul(b, c), mul(a, s)), n);
    });
  } else {
    for (int i = 0; i < n_pairs; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1], sine = sign * sines[i];
      x[2 * i] = a * cosines[i] - b * sine;
      x[2 * i + 1] = b * cosines[i] + a * sine;
    }
  }
}

// Any number of values in a row, converted.
template <class Kv>
inline void convert(typename Kv::Bits* out, const float* x, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) Kv::store16(out + i, load(x + i));
  if (i == n) return;
  typename Kv::Bits tail[16];
  Kv::store16(tail, load_n(x + i, n - i));
  for (int j = 0; i + j < n; ++j) out[i + j] = tail[j];
}

// Where a token's page and row in it are.
struct Place { int32_t page, in_page; };
inline Place place_of(const KvRef& kv, const Step& step, int64_t t) {
  const StepSeq& seq = step.seqs().data()[step.seq_of().data()[t]];
  const int32_t position = step.positions().data()[t];
  return {step.pages()[seq.first_page[kv.group] + position / kv.page_size], position % kv.page_size};
}

// K and V of a head in fp8: a row of codes, then to where they belong.
void store_fp8(const RopeStore& op, const Step& step, int plane, int64_t head, int64_t first, int64_t last, std::byte* scratch) {
  const Tensor& x = plane == 0 ? op.k : op.v;
  const int dim = plane == 0 ? op.head_dim : op.v_dim, page = op.kv.page_size;
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  for (int64_t t = first; t < last; ++t) {
    const Place place = place_of(op.kv, step, t);
    reinterpret_cast<float*>(op.kv.scales(plane, place.page))[head * page + place.in_page] = encode_kv_fp8(codes, x.f32(t) + head * dim, dim);
    auto* out = reinterpret_cast<uint8_t*>(op.kv.plane(plane, place.page)) + head * dim * page + (plane == 0 ? place.in_page : place.in_page * dim);
    for (int d = 0; d < dim; ++d) out[d * (plane == 0 ? page : 1)] = codes[d];
  }
}

// Columns of a K page are positions: what a token writes lies page_size numbers apart. One new token finds none of these lines in a cache, and stores would
// fetch them one by one, in order: asked for beforehand they come side by side. Without values, keys lie as rows.
void store_k(const RopeStore& op, const Step& step, int64_t head, int64_t first, int64_t last, std::byte* scratch) {
  with_kv_format(op.kv.planes[0].format, [&](auto kv) {
    using Bits = typename decltype(kv)::Bits;
    auto* row = reinterpret_cast<Bits*>(scratch);
    for (int64_t t = first; t < last; ++t) {
      const Place place = place_of(op.kv, step, t);
      if (!op.v) {
        convert<decltype(kv)>(row, op.k.f32(t) + head * op.head_dim, op.head_dim);
        Bits* out = reinterpret_cast<Bits*>(op.kv.plane(0, place.page)) + (head * op.kv.page_size + place.in_page) * op.head_dim;
        for (int d = 0; d < op.head_dim; ++d) out[d] = row[d];
        continue;
      }
      Bits* out = reinterpret_cast<Bits*>(op.kv.plane(0, place.page)) + head * op.head_dim * op.kv.page_size + place.in_page;
      if (t == first)
        for (int d = 0; d < op.head_dim; ++d) __builtin_prefetch(out + int64_t{d} * op.kv.page_size, 1);
      convert<decltype(kv)>(row, op.k.f32(t) + head * op.head_dim, op.head_dim);
      for (int d = 0; d < op.head_dim; ++d) out[int64_t{d} * op.kv.page_size] = row[d];
    }
  });
}

void store_v(const RopeStore& op, const Step& step, int64_t head, int64_t first, int64_t last) {
  with_kv_format(op.kv.planes[1].format, [&](auto kv) {
    using Bits = typename decltype(kv)::Bits;
    for (int64_t t = first; t < last; ++t) {
      const Place place = place_of(op.kv, step, t);
      Bits* out = reinterpret_cast<Bits*>(op.kv.plane(1, place.page)) + (head * op.kv.page_size + place.in_page) * op.v_dim;
      convert<decltype(kv)>(out, op.v.f32(t) + head * op.v_dim, op.v_dim);
    }
  });
}

}  // namespace

bool supports_kv(const KvRef& kv) {
  if (kv.page_size < 16 || 64 % kv.page_size != 0) return false;
  if (kv.planes[1].head_dim == 0) return is_kv_format(kv.planes[0].format);
  const auto known = [](FormatId f) { return is_kv_format(f) || f == FormatId::fp8_e4m3; };
  return known(kv.planes[0].format) && known(kv.planes[1].format);
}

void rope_angles(const RopeAngles& op, Lane& lane) {
  const Step& step = *lane.step;
  const auto [first, last] = lane.part(op.angles.rows * op.n_freqs);
  for (int64_t i = first; i < last; ++i) {
    const int64_t t = i / op.n_freqs, j = i % op.n_freqs;
    const float* freqs = step.rope_freqs(op.rope, step.seqs().data()[step.seq_of().data()[t]].rope_row);
    const float factor = freqs[step.limits().n_freqs], angle = static_cast<float>(step.positions().data()[t]) * freqs[j];
    op.angles.f32(t)[j] = ::cosf(angle) * factor;
    op.angles.f32(t)[op.n_freqs + j] = ::sinf(angle) * factor;
  }
}

// A unit is a head of 16 rows, heads first: neighbouring positions share cache lines of a K page, so rows of one head stay with one worker. q, k and v are
// shared out one after the other, since storing k costs many times what rotating q does.
void rope_store(const RopeStore& op, Lane& lane) {
  const Step& step = *lane.step;
  const int64_t n_rows = op.q.rows, n_blocks = (n_rows + kRows - 1) / kRows, n_freqs = op.angles.cols / 2;
  const auto for_units = [&](int64_t n_heads, auto&& work) {
    const auto [first, last] = lane.part(n_heads * n_blocks);
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i % n_blocks * kRows;
      work(i / n_blocks, row, row + kRows < n_rows ? row + kRows : n_rows);
    }
  };
  const auto rotate_rows = [&](const Tensor& x, int64_t head, int64_t row, int64_t end) {
    if (!op.angles) return;
    for (int64_t t = row; t < end; ++t) rotate(x.f32(t) + head * op.head_dim + op.rot_first, op.angles.f32(t), op.angles.f32(t) + n_freqs, op.n_rot, op.style, op.back);
  };
  for_units(op.k ? op.n_kv_heads : 0, [&](int64_t head, int64_t row, int64_t end) {
    rotate_rows(op.k, head, row, end);
    if (op.v && op.kv.planes[0].format == FormatId::fp8_e4m3) store_fp8(op, step, 0, head, row, end, lane.own.data());
    else store_k(op, step, head, row, end, lane.own.data());
  });
  for_units(op.v ? op.n_kv_heads : 0, [&](int64_t head, int64_t row, int64_t end) {
    if (op.kv.planes[1].format == FormatId::fp8_e4m3) store_fp8(op, step, 1, head, row, end, lane.own.data());
    else store_v(op, step, head, row, end);
  });
  for_units(op.n_heads, [&](int64_t head, int64_t row, int64_t end) { rotate_rows(op.q, head, row, end); });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
