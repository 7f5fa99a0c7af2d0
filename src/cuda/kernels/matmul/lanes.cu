// The input of a matmul of a few or several tokens, from rows in f32 to how that matmul wants it (lib/lanes.h), where nobody made it so at once.
#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/unit.h"

namespace ridge::cuda {
namespace {

template <bool kHalves>
__global__ void take_input_kernel(Lanes out, Tensor x, int n_units) {
  follow();
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = i % 32, h = i / 32 % 2, group = i / 64 % out.n_groups, unit = i / 64 / out.n_groups;
  if (unit >= n_units) return;
  const int token = group * 8 + lane / 4, k = unit * kUnit + lane_input<kHalves>(lane % 4, h);
  float v[8] = {};
  if (token < x.rows) {
    const float* row = reinterpret_cast<const float*>(x.data + token * x.stride);
    if (k + 8 <= x.cols) {
      const float4 low = *reinterpret_cast<const float4*>(row + k), high = *reinterpret_cast<const float4*>(row + k + 4);
      v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w, v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
      for (int j = 0; j < 8; ++j) v[j] = k + j < x.cols ? row[k + j] : 0.0f;
    }
  }
  const uint4 packed = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
  if (!out.rows) reinterpret_cast<uint4*>(out.data)[i] = packed;
  else out.put_four(out.at(token, k), {packed.x, packed.y}), out.put_four(out.at(token, k + 4), {packed.z, packed.w});
}

}  // namespace

void input_in_lanes(const Lanes& out, const Tensor& x, const Launch& l) {
  const int n_units = (int(x.cols) + kUnit - 1) / kUnit;
  launch_kernel(out.halves ? take_input_kernel<true> : take_input_kernel<false>, (out.n_groups * n_units * 64 + 255) / 256, 256, 0, l.stream, out, x, n_units);
}

}  // namespace ridge::cuda
