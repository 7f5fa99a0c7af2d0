// Which unit (lib/unit.h) a prepared weight is made of. Weights of one unit may share a launch.
#pragma once
#include "backend/op.h"
#include "cuda/lib/fp8_unit.h"

namespace ridge::cuda {

constexpr int kScaleBlock = 128;                                            // inputs that share a scale in fp8 weights with scales for 128 x 128; it is their Arithmetic::k_block

inline bool has_block_scales(const Weight& w) { return w.format == FormatId::fp8_e4m3 && w.arithmetic.k_block == kScaleBlock; }
inline bool same_unit(const Weight& a, const Weight& b) { return a.format == b.format && a.arithmetic.x == b.arithmetic.x && has_block_scales(a) == has_block_scales(b); }
inline const Weight& first_of(const Matmul& op) { return *(op.w[0] ? op.w[0] : op.w[1] ? op.w[1] : op.w[2]); }
// Whether its inputs are taken in two halves (lane_input).
inline bool takes_halves(const Weight& w) { return w.format == FormatId::q8_0 || w.format == FormatId::q4_0 || w.format == FormatId::q4_1; }

// f(Unit{}) for the weight's unit.
template <class F>
auto with_unit(const Weight& w, F&& f) {
  switch (w.format) {
    case FormatId::nvfp4: return f(Nvfp4Unit{});
    case FormatId::mxfp4: return f(Mxfp4Unit{});
    case FormatId::q8_0: return f(Q8Unit{});
    case FormatId::q4_0: return f(Q4Unit{});
    case FormatId::q4_1: return f(Q41Unit{});
    case FormatId::fp8_e4m3: return has_block_scales(w) ? f(Fp8Unit<true>{}) : f(Fp8Unit<false>{});
    default: return f(Bf16Unit{});
  }
}

}  // namespace ridge::cuda
