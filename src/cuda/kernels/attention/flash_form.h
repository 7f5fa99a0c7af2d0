// The forms of KV that the kernels of attention on the tensor cores (cuda/kernels/attention/flash.h) are compiled for.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "cuda/lib/flash.h"

namespace ridge::cuda {

// f(T{}, kDim as a constant) for the KV of an op that flash_supports().
template <class F>
auto with_form(const PagedAttention& op, F&& f) {
  const auto with_dim = [&]<class T>(T t) {
    switch (op.head_dim) {
      case 64: return f(t, std::integral_constant<int, 64>{});
      case 128: return f(t, std::integral_constant<int, 128>{});
      default: return f(t, std::integral_constant<int, 256>{});
    }
  };
  switch (op.kv.planes[0].format) {
    case FormatId::f16: return with_dim(__half{});
    case FormatId::fp8_e4m3: return with_dim(E4m3{});
    default: return with_dim(__nv_bfloat16{});
  }
}

}  // namespace ridge::cuda
