// A token's activations in int8, as arithmetic i8 has them: per 32 inputs scale = absmax / 127 and codes = x * (127 / absmax) to the nearest integer (ties to
// even), in [-127, 127]. In i16 a second plane holds what the first one misses, e = fma(-scale, code, x), quantized in the same way with a scale of its own
// per 32 inputs. Where the weights have sums over 64 inputs (all of an op or none: kinds[0].block), so have the codes their scales, in i8 alone. A token with an infinity or a NaN gets a NaN for its first scale, so that it is seen in the result. Layout: cpu/panels.h, plane_bytes().
//
// With the codes go the sums that the weights' formats ask for, at most one kind per weight of the Matmul: per block of inputs, where the integer sum begins
// (begin - offset * sum of codes), or for a format with mins the product scale * sum of codes; if that one has an offset too, its beginnings are a fourth form.
#pragma once
#include "cpu/kernels/matmul_tiles.h"

namespace ridge::cpu::RIDGE_ISA_NS {

struct SumKind {
  int block = 0, offset = 0, begin = 0;      // block 0: none wanted
  bool product = false;
  bool operator==(const SumKind&) const = default;
};

class QuantizedTokens {
 public:
  QuantizedTokens(std::byte* base, int64_t cols, int n_planes)
      : base_(base), cols_(cols), k_(superblocks_of(cols) * 64), n_planes_(n_planes), plane_(plane_bytes(cols)), stride_(n_planes * plane_) {}

  int64_t stride() const { return stride_; }
  // For a weight that wants sums of this kind and the first n_planes of those there are.
  IntInput input(int64_t token, int kind, bool product, int n_planes) const {
    const Plane first = plane(token, 0);
    return {first.codes, first.scales, first.begins(product ? kBeginsOfProducts : kind), first.products(kind), stride_, plane_, n_planes};
  }

  void quantize(int64_t token, const float* x, const SumKind (&kinds)[3]) const {
    if (kinds[0].block == 64) return quantize_in_64(plane(token, 0), x, kinds[0]);
    F poison = zero();
    for (int64_t k = 0; k < k_; k += 32) {
      F a = k + 32 <= cols_ ? load(x + k) : load_n(x + k, left(k)), b = k + 32 <= cols_ ? load(x + k + 16) : load_n(x + k + 16, left(k + 16));
      poison = fma(a, zero(), fma(b, zero(), poison));
      quantize_block(plane(token, 0), k, a, b, kinds);
      if (n_planes_ > 1) quantize_block(plane(token, 1), k, a, b, kinds);
    }
    if (!(reduce_add(poison) == 0.0f)) plane(token, 0).scales[0] = __builtin_nanf("");
  }

 private:
  static constexpr int kBeginsOfProducts = 3;
  struct Plane {
    int8_t* codes;
    int64_t k;
    float* scales;
    int32_t* begins(int form) const { return reinterpret_cast<int32_t*>(codes + k + 64 + k / 8 + form * (k / 4)); }
    float* products(int form) const { return reinterpret_cast<float*>(begins(form)); }
  };
  Plane plane(int64_t token, int i) const {
    auto* codes = reinterpret_cast<int8_t*>(base_ + token * stride_ + i * plane_);
    return {codes, k_, reinterpret_cast<float*>(codes + k_ + 64)};
  }

  struct Scale { float scale, inverse; bool usable; };
  static Scale scale_of(float largest) {
    const bool usable = largest > 1e-30f && largest < __builtin_inff();
    return {usable ? largest / 127.0f : 0.0f, 127.0f / largest, usable};
  }

  void quantize_in_64(const Plane& out, const float* x, const SumKind& kind) const {
    F poison = zero();
    for (int64_t k = 0; k < k_; k += 64) {
      F v[4];
#pragma GCC unroll kUnroll
      for (int i = 0; i < 4; ++i) v[i] = k + 64 <= cols_ ? load(x + k + 16 * i) : load_n(x + k + 16 * i, left(k + 16 * i));
      poison = fma(v[0], zero(), fma(v[1], zero(), fma(v[2], zero(), fma(v[3], zero(), poison))));
      const Scale s = scale_of(reduce_max(max(max(abs(v[0]), abs(v[1])), max(abs(v[2]), abs(v[3])))));
      F sums = zero();
#pragma GCC unroll kUnroll
      for (int i = 0; i < 4; ++i) {
        const I codes = s.usable ? to_int(mul(v[i], set1(s.inverse))) : izero();
        store_i8(out.codes + k + 16 * i, codes);
        sums = add(sums, to_float(codes));
      }
      out.scales[k / 32] = out.scales[k / 32 + 1] = s.scale;
      out.begins(0)[k / 64] = kind.begin - kind.offset * static_cast<int32_t>(reduce_add(sums));
    }
    if (!(reduce_add(poison) == 0.0f)) out.scales[0] = __builtin_nanf("");
  }

  // Inputs k .. k+31 are in a and b; what their codes miss is left there.
  static void quantize_block(const Plane& out, int64_t k, F& a, F& b, const SumKind (&kinds)[3]) {
    const auto [scale, inverse, usable] = scale_of(reduce_max(max(abs(a), abs(b))));
    const I low = usable ? to_int(mul(a, set1(inverse))) : izero(), high = usable ? to_int(mul(b, set1(inverse))) : izero();
    const F low_codes = to_float(low), high_codes = to_float(high);
    out.scales[k / 32] = scale;
    store_i8(out.codes + k, low);
    store_i8(out.codes + k + 16, high);
    const int32_t sum = static_cast<int32_t>(reduce_add(add(low_codes, high_codes)));
    const auto put = [&](int i, int64_t block, int32_t of_block) {
      const SumKind& kind = kinds[i];
      if (kind.product) out.products(i)[block] = scale * static_cast<float>(of_block);
      if (!kind.product || kind.offset != 0) out.begins(kind.product ? kBeginsOfProducts : i)[block] = kind.begin - kind.offset * of_block;
    };
    for (int i = 0; i < 3; ++i) {
      if (kinds[i].block == 32) {
        put(i, k / 32, sum);
      } else if (kinds[i].block == 16) {
        const int32_t sum_low = static_cast<int32_t>(reduce_add(low_codes));
        put(i, k / 16, sum_low);
        put(i, k / 16 + 1, sum - sum_low);
      }
    }
    a = fma(set1(-scale), low_codes, a);
    b = fma(set1(-scale), high_codes, b);
  }

  int left(int64_t k) const { return k >= cols_ ? 0 : static_cast<int>(cols_ - k < 16 ? cols_ - k : 16); }

  std::byte* base_;
  int64_t cols_, k_;
  int n_planes_;
  int64_t plane_, stride_;
};

}  // namespace ridge::cpu::RIDGE_ISA_NS
