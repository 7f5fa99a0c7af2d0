// Rotary angles once per step, and the rotation fused with putting K and V into their pages. Pages hold [kv_head][position][dim] in the plane's format.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

__global__ void angles_kernel(RopeAngles op, StepView step) {
  follow();
  const int t = blockIdx.x;
  const StepSeq& seq = step.seqs[step.seq_of[t]];
  const float* freqs = step.rope + (int64_t{seq.rope_row} * step.n_ropes + op.rope) * (step.n_freqs + 1);
  const float factor = freqs[step.n_freqs];
  float* out = reinterpret_cast<float*>(op.angles.data + t * op.angles.stride);
  for (int i = threadIdx.x; i < op.n_freqs; i += blockDim.x) {
    const float angle = float(step.positions[t]) * freqs[i];
    out[i] = cosf(angle) * factor;
    out[op.n_freqs + i] = sinf(angle) * factor;
  }
}

__device__ void put(std::byte* plane, FormatId format, int64_t index, float v) {
  if (format == FormatId::f32) reinterpret_cast<float*>(plane)[index] = v;
  else if (format == FormatId::f16) reinterpret_cast<__half*>(plane)[index] = __float2half_rn(v);
  else reinterpret_cast<__nv_bfloat16*>(plane)[index] = __float2bfloat16_rn(v);
}

// Element d of a head after rotation: its partner is half a rotation away, or its neighbour.
__device__ float rotated(const float* x, const float* angles, int d, int n_rot, RopeStyle style) {
  if (!angles || d >= n_rot) return x[d];
  const int half = n_rot / 2;
  const bool first = style == RopeStyle::half ? d < half : d % 2 == 0;
  const int i = style == RopeStyle::half ? (first ? d : d - half) : d / 2;
  const int partner = style == RopeStyle::half ? (first ? d + half : d - half) : (first ? d + 1 : d - 1);
  const float c = angles[i], s = angles[half + i];
  return first ? fmaf(x[d], c, -(x[partner] * s)) : fmaf(x[d], c, x[partner] * s);
}

__global__ void rope_store_kernel(RopeStore op, StepView step) {
  follow();
  const int t = blockIdx.x, unit = blockIdx.y;                              // unit: q heads, then k heads, then v heads
  const int d = threadIdx.x;
  const float* angles = op.angles.data ? reinterpret_cast<const float*>(op.angles.data + t * op.angles.stride) : nullptr;
  if (unit < op.n_heads) {
    float* q = reinterpret_cast<float*>(op.q.data + t * op.q.stride) + unit * op.head_dim;
    const float v = d < op.head_dim ? rotated(q, angles, d, op.n_rot, op.style) : 0;
    __syncthreads();
    if (d < op.head_dim) q[d] = v;
    return;
  }
  const int position = step.positions[t];
  const int32_t page = step.pages[step.seqs[step.seq_of[t]].first_page[op.kv.group] + position / op.kv.page_size];
  const int slot = position % op.kv.page_size;
  if (unit < op.n_heads + op.n_kv_heads) {
    if (d >= op.head_dim) return;
    const int h = unit - op.n_heads;
    const float* k = reinterpret_cast<const float*>(op.k.data + t * op.k.stride) + h * op.head_dim;
    put(op.kv.plane(0, page), op.kv.planes[0].format, (int64_t{h} * op.kv.page_size + slot) * op.head_dim + d, rotated(k, angles, d, op.n_rot, op.style));
  } else {
    if (d >= op.v_dim) return;
    const int h = unit - op.n_heads - op.n_kv_heads;
    const float* v = reinterpret_cast<const float*>(op.v.data + t * op.v.stride) + h * op.v_dim;
    put(op.kv.plane(1, page), op.kv.planes[1].format, (int64_t{h} * op.kv.page_size + slot) * op.v_dim + d, v[d]);
  }
}

}  // namespace

void rope_angles(const RopeAngles& op, const Launch& l) {
  if (op.angles.rows > 0) launch_kernel(angles_kernel, op.angles.rows, 64, 0, l.stream, op, l.step);
}

void rope_store(const RopeStore& op, const Launch& l) {
  if (op.q.rows == 0) return;
  const int threads = ((op.head_dim > op.v_dim ? op.head_dim : op.v_dim) + 31) / 32 * 32;
  launch_kernel(rope_store_kernel, dim3(op.q.rows, op.n_heads + 2 * op.n_kv_heads), threads, 0, l.stream, op, l.step);
}

}  // namespace ridge::cuda
