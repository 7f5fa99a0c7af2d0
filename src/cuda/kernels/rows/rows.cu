// Ops that treat each row on its own: embedding, norms of heads, sums, activation, gathering, scaling. One block a row (or a slice of it); bandwidth is all they need.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "cuda/kernels/choosing/chosen.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/activation.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/row_norm.h"

namespace ridge::cuda {
namespace {

__device__ float e4m3(std::byte v) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(v), __NV_E4M3))); }

// 0 1 2 3 4 6 8 12 and their negatives.
__device__ float doubled_e2m1(int code) {
  const float doubled = (code & 7) < 4 ? float(code & 7) : float((code & 1) + 2) * float(1 << ((code >> 1 & 3) - 1));
  return code & 8 ? -doubled : doubled;
}

__device__ float element(const std::byte* row, FormatId format, int64_t i) {
  switch (format) {
    case FormatId::f32: return reinterpret_cast<const float*>(row)[i];
    case FormatId::f16: return __half2float(reinterpret_cast<const __half*>(row)[i]);
    case FormatId::bf16: return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i]);
    case FormatId::fp8_e4m3: return e4m3(row[i]);
    case FormatId::q4_0: {                                                                // f16 scale, 16 bytes: number j low, j + 16 high
      const std::byte* block = row + i / 32 * 18;
      const int pair = int(block[2 + i % 16]);
      return __half2float(*reinterpret_cast<const __half*>(block)) * float((i % 32 < 16 ? pair & 15 : pair >> 4) - 8);
    }
    case FormatId::q4_1: {                                                                // f16 scale, f16 minimum, then as q4_0
      const std::byte* block = row + i / 32 * 20;
      const int pair = int(block[4 + i % 16]);
      return fmaf(float(i % 32 < 16 ? pair & 15 : pair >> 4), __half2float(reinterpret_cast<const __half*>(block)[0]), __half2float(reinterpret_cast<const __half*>(block)[1]));
    }
    case FormatId::mxfp4: {                                                               // exponent, then as q4_0; half of 2^(e - 127) is a number for every e
      const std::byte* block = row + i / 32 * 17;
      const int pair = int(block[1 + i % 16]), e = int(block[0]);
      return doubled_e2m1(i % 32 < 16 ? pair & 15 : pair >> 4) * __uint_as_float(e < 2 ? 0x00200000u << e : uint32_t(e - 1) << 23);
    }
    case FormatId::nvfp4: {                                                               // four scales, then 8 bytes for each 16 numbers: number j low, j + 8 high
      const std::byte* block = row + i / 64 * 36;
      const int group = int(i % 64 / 16), pair = int(block[4 + 8 * group + i % 8]), code = i % 16 < 8 ? pair & 15 : pair >> 4, scale = int(block[group]) & 0x7F;
      return scale == 0x7F ? 0.0f : doubled_e2m1(code) * (e4m3(std::byte(scale)) * 0.5f);
    }
    default: {                                                                            // q8_0: f16 scale, 32 int8
      const std::byte* block = row + i / 32 * 34;
      return __half2float(*reinterpret_cast<const __half*>(block)) * float(reinterpret_cast<const int8_t*>(block + 2)[i % 32]);
    }
  }
}

__global__ void embed_kernel(Tensor out, Tensor table, FormatId format, const int32_t* rows, Choices before, float table_scale, float scale, bool add) {
  follow();
  const int t = blockIdx.x;
  const std::byte* const row = table.data + int64_t{named_token(rows[t], before)} * table.stride;
  float* to = reinterpret_cast<float*>(out.data + t * out.stride);
  for (int64_t i = blockIdx.y * blockDim.x + threadIdx.x; i < out.cols; i += gridDim.y * blockDim.x) {
    const float v = element(row, format, i) * table_scale * scale;
    to[i] = add ? to[i] + v : v;
  }
}

// A warp takes a head. Without mean and bias the bits are those of norm_head (lib/rotate.h).
__global__ void head_norm_kernel(HeadNorm op) {
  follow();
  const int head_dim = op.x.cols / op.n_heads;
  const int unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (unit >= op.x.rows * op.n_heads) return;
  const int t = unit / op.n_heads, h = unit % op.n_heads;
  float* x = reinterpret_cast<float*>(op.x.data + t * op.x.stride) + h * head_dim;
  const auto of_head = [&](const Tensor& vector) { return vector.data ? reinterpret_cast<const float*>(vector.data) + (vector.cols == head_dim ? 0 : h * head_dim) : nullptr; };
  const float* weight = of_head(op.weight);
  const float* bias = of_head(op.bias);
  float mean = 0, squares = 0;
  if (op.kind == NormKind::layer) {
    for (int i = lane; i < head_dim; i += 32) mean += x[i];
    mean = warp_sum(mean) / head_dim;
  }
  for (int i = lane; i < head_dim; i += 32) squares = fmaf(x[i] - mean, x[i] - mean, squares);
  const float factor = rms_factor(warp_sum(squares), head_dim, op.eps);
  for (int i = lane; i < head_dim; i += 32) {
    const float v = (x[i] - mean) * factor * (weight ? weight[i] + op.weight_offset : 1.0f);
    x[i] = bias ? v + bias[i] : v;
  }
}

__global__ void add_scaled_kernel(AddScaled op) {
  follow();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= op.x.cols) return;
  const int t = blockIdx.y;
  float* x = reinterpret_cast<float*>(op.x.data + t * op.x.stride);
  x[i] = fmaf(op.scale, reinterpret_cast<const float*>(op.y.data + t * op.y.stride)[i], x[i]);
}

__global__ void scale_by_position_kernel(ScaleByPosition op, const int32_t* positions) {
  follow();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= op.x.cols) return;
  const int t = blockIdx.y;
  const float steps = floorf(float(positions[t] + op.offset) / float(op.floor_scale));
  reinterpret_cast<float*>(op.x.data + t * op.x.stride)[i] *= 1.0f + op.factor * logf(1.0f + steps);
}

template <ActKind kind>
__global__ void activate_kernel(Activate op) {
  follow();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= op.out.cols) return;
  const int t = blockIdx.y;
  const float gate = reinterpret_cast<const float*>(op.gate.data + t * op.gate.stride)[i];
  const float up = op.up.data ? reinterpret_cast<const float*>(op.up.data + t * op.up.stride)[i] : 1.0f;
  reinterpret_cast<float*>(op.out.data + t * op.out.stride)[i] = act<kind>(gate) * up;
}

__global__ void gather_kernel(GatherRows op, const int32_t* rows) {
  follow();
  const int t = blockIdx.x, from = rows[t];
  float* out = reinterpret_cast<float*>(op.out.data + t * op.out.stride);
  const float* x = reinterpret_cast<const float*>(op.x.data + from * op.x.stride);
  const float* pending = op.pending.data ? reinterpret_cast<const float*>(op.pending.data + from * op.pending.stride) : nullptr;
  for (int64_t i = threadIdx.x; i < op.out.cols; i += blockDim.x) out[i] = pending ? fmaf(op.pending_scale, pending[i], x[i]) : x[i];
}

__global__ void scale_cap_kernel(ScaleCap op) {
  follow();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= op.x.cols) return;
  float* x = reinterpret_cast<float*>(op.x.data + blockIdx.y * op.x.stride);
  const float v = x[i] * op.scale;
  x[i] = op.cap > 0 ? op.cap * tanhf(v / op.cap) : v;
}

}  // namespace

void embed(const Embed& op, const Launch& l) {
  if (op.out.rows == 0) return;
  // One number a thread where tokens are few: after the other each would cost a trip to memory. A step's first kernel: those after it need not ask for the step before.
  const dim3 grid(op.out.rows, op.out.rows <= 32 ? (op.out.cols + 255) / 256 : 1);
  launch_kernel_as({.overlaps = false}, embed_kernel, grid, 256, 0, l.stream, op.out, op.table->packed, op.table->packed.format, op.by_position ? l.step.positions : l.step.tokens, l.choices, op.table->scale, op.scale, op.add);
}

void head_norm(const HeadNorm& op, const Launch& l) {
  const int64_t units = op.x.rows * op.n_heads;
  if (units > 0) launch_kernel(head_norm_kernel, (units + 3) / 4, 128, 0, l.stream, op);
}

void add_scaled(const AddScaled& op, const Launch& l) {
  if (op.x.rows > 0) launch_kernel(add_scaled_kernel, dim3((op.x.cols + 255) / 256, op.x.rows), 256, 0, l.stream, op);
}

void scale_by_position(const ScaleByPosition& op, const Launch& l) {
  if (op.x.rows > 0) launch_kernel(scale_by_position_kernel, dim3((op.x.cols + 255) / 256, op.x.rows), 256, 0, l.stream, op, l.step.positions);
}

void activate(const Activate& op, const Launch& l) {
  if (op.out.rows == 0) return;
  const dim3 grid((op.out.cols + 255) / 256, op.out.rows);
  switch (op.kind) {
    case ActKind::silu: launch_kernel(activate_kernel<ActKind::silu>, grid, 256, 0, l.stream, op); break;
    case ActKind::gelu_tanh: launch_kernel(activate_kernel<ActKind::gelu_tanh>, grid, 256, 0, l.stream, op); break;
    case ActKind::gelu_erf: launch_kernel(activate_kernel<ActKind::gelu_erf>, grid, 256, 0, l.stream, op); break;
    case ActKind::relu: launch_kernel(activate_kernel<ActKind::relu>, grid, 256, 0, l.stream, op); break;
    case ActKind::relu2: launch_kernel(activate_kernel<ActKind::relu2>, grid, 256, 0, l.stream, op); break;
    case ActKind::sigmoid: launch_kernel(activate_kernel<ActKind::sigmoid>, grid, 256, 0, l.stream, op); break;
    default: break;                          // no dense family has another; refused at load
  }
}

void gather_rows(const GatherRows& op, const Launch& l) {
  if (op.out.rows > 0) launch_kernel(gather_kernel, op.out.rows, 256, 0, l.stream, op, l.step.logit_rows);
}

void scale_cap(const ScaleCap& op, const Launch& l) {
  if (op.x.rows > 0) launch_kernel(scale_cap_kernel, dim3((op.x.cols + 255) / 256, op.x.rows), 256, 0, l.stream, op);
}

}  // namespace ridge::cuda
