// A token's activations in int8, as arithmetic i8 has them: per 32 inputs scale = absmax / 127 and codes = x * (127 / absmax) to the nearest integer (ties to
// even), in [-127, 127]. A token with an infinity or a NaN gets a NaN for its first scale, so that it is seen in the result. Layout: cpu/panels.h, token_bytes().
//
// With the codes go the sums that the weights' formats ask for, at most one kind per weight of the Matmul: per kBlock inputs, begin + factor * sum of codes.
#pragma once
#include "cpu/kernels/matmul_tiles.h"

namespace ridge::cpu::RIDGE_ISA_NS {

struct SumKind { int block = 0, factor = 0, begin = 0; };      // block 0: none wanted

class QuantizedTokens {
 public:
  QuantizedTokens(std::byte* base, int64_t cols) : base_(base), cols_(cols), k_(superblocks_of(cols) * 64), stride_(token_bytes(cols)) {}

  int64_t stride() const { return stride_; }
  int8_t* codes(int64_t token) const { return reinterpret_cast<int8_t*>(base_ + token * stride_); }
  float* scales(int64_t token) const { return reinterpret_cast<float*>(base_ + token * stride_ + k_ + 64); }
  int32_t* sums(int64_t token, int kind) const { return reinterpret_cast<int32_t*>(base_ + token * stride_ + k_ + 64 + k_ / 8 + kind * (k_ / 4)); }
  IntInput input(int64_t token, int kind) const { return {codes(token), scales(token), sums(token, kind), stride_}; }

  void quantize(int64_t token, const float* x, const SumKind (&kinds)[3]) const {
    int8_t* codes_out = codes(token);
    float* scales_out = scales(token);
    F poison = zero();
    for (int64_t k = 0; k < k_; k += 32) {
      const F a = k + 32 <= cols_ ? load(x + k) : load_n(x + k, left(k)), b = k + 32 <= cols_ ? load(x + k + 16) : load_n(x + k + 16, left(k + 16));
      poison = fma(a, zero(), fma(b, zero(), poison));
      const float largest = reduce_max(max(abs(a), abs(b)));
      const bool usable = largest > 1e-30f && largest < __builtin_inff();
      const float inverse = 127.0f / largest;
      scales_out[k / 32] = usable ? largest / 127.0f : 0.0f;
      const I low = usable ? to_int(mul(a, set1(inverse))) : izero(), high = usable ? to_int(mul(b, set1(inverse))) : izero();
      store_i8(codes_out + k, low);
      store_i8(codes_out + k + 16, high);
      const int32_t sum_low = static_cast<int32_t>(reduce_add(to_float(low))), sum_high = static_cast<int32_t>(reduce_add(to_float(high)));
      for (int i = 0; i < 3; ++i) {
        if (kinds[i].block == 32) {
          sums(token, i)[k / 32] = kinds[i].begin + kinds[i].factor * (sum_low + sum_high);
        } else if (kinds[i].block == 16) {
          sums(token, i)[k / 16] = kinds[i].begin + kinds[i].factor * sum_low;
          sums(token, i)[k / 16 + 1] = kinds[i].begin + kinds[i].factor * sum_high;
        }
      }
    }
    if (!(reduce_add(poison) == 0.0f)) scales_out[0] = __builtin_nanf("");
  }

 private:
  int left(int64_t k) const { return k >= cols_ ? 0 : static_cast<int>(cols_ - k < 16 ? cols_ - k : 16); }

  std::byte* base_;
  int64_t cols_, k_, stride_;
};

}  // namespace ridge::cpu::RIDGE_ISA_NS
