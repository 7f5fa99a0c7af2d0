// A norm of rows, with what is pending added on the way: one block a row, which holds it from the first look to the last. Many tokens before a matmul have one of their own (norm_many.cu).
#include "cuda/kernels/kernels.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/mma.h"
#include "cuda/lib/row_norm.h"

namespace ridge::cuda {
namespace {

// kOwn: chunks of four numbers that a thread holds from the first look at them to the last; all are asked for before the first is used.
template <int kOwn>
__global__ void __launch_bounds__(kNormThreads) add_norm_kernel(const __grid_constant__ AddNorm op, const __grid_constant__ NormedAs as) {
  const Tiles& tiles = as.tiles;
  const Lanes& lanes = as.lanes;
  alignas(16) __shared__ float shared[8];
  RIDGE_DYNAMIC_SHARED(row_of_tiles, 16);                                    // the row as it lies in tiles, so that it leaves in whole lines
  start_dependents();
  await_predecessors();
  const int t = blockIdx.x, n = int(op.x.cols), n_units = (n + 63) / 64;
  float* x = reinterpret_cast<float*>(op.x.data + t * op.x.stride);
  const float* pending = op.pending.data ? reinterpret_cast<const float*>(op.pending.data + t * op.pending.stride) : nullptr;
  float* out = reinterpret_cast<float*>(op.out.data + t * op.out.stride);
  const float* weight = reinterpret_cast<const float*>(op.weight.data);
  const float* bias = reinterpret_cast<const float*>(op.bias.data);
  const auto place = [](int i) { return 4 * (int(threadIdx.x) + i * kNormThreads); };
  const auto put = [&](float* row, int k, const float4& v) {
    if (k + 4 <= n) *reinterpret_cast<float4*>(row + k) = v;
    else {
      if (k < n) row[k] = v.x;
      if (k + 1 < n) row[k + 1] = v.y;
      if (k + 2 < n) row[k + 2] = v.z;
    }
  };
  float4 own[kOwn], more[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own[i] = four_of(x, place(i), n);
  if (pending) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) more[i] = four_of(pending, place(i), n);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      float4& v = own[i];
      v = {fmaf(op.pending_scale, more[i].x, v.x), fmaf(op.pending_scale, more[i].y, v.y), fmaf(op.pending_scale, more[i].z, v.z), fmaf(op.pending_scale, more[i].w, v.w)};
      put(x, place(i), v);
    }
  }
  float sum = 0, squares[2] = {};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    sum += (own[i].x + own[i].y) + (own[i].z + own[i].w);
    const float of_tile = tile_squares(own[i]);
    squares[i % 2] += of_tile;
    if (as.squares.at && threadIdx.x % 4 == 0 && place(i) < n) as.squares.at[as.squares.place(t, place(i))] = of_tile;
  }
  float mean = 0, factor;
  if (op.kind == NormKind::layer) {
    mean = block_sum(sum, shared) / n;
    float spread = 0;                                                       // second pass: the variance about the mean, not a difference of large sums
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float v[4] = {own[i].x, own[i].y, own[i].z, own[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (place(i) + j < n) spread += (v[j] - mean) * (v[j] - mean);
    }
    factor = rsqrtf(block_sum(spread, shared) / n + op.eps);
  } else {
    factor = rms_factor(sum_of_warps(warp_squares(squares), shared), n, op.eps);
    if (as.factors && threadIdx.x == 0) as.factors[t] = factor;
    if (as.factors || as.squares.at) factor = 1;
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int k = place(i);
    if (k >= n) break;
    const float4 w = weight ? four_of(weight, k, n) : float4{1, 1, 1, 1}, b = bias ? four_of(bias, k, n) : float4{0, 0, 0, 0};
    const float from[4] = {own[i].x, own[i].y, own[i].z, own[i].w}, by[4] = {w.x, w.y, w.z, w.w}, plus[4] = {b.x, b.y, b.z, b.w};
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = (from[j] - mean) * factor * (weight ? by[j] + op.weight_offset : 1.0f);
      if (bias) v[j] = v[j] + plus[j];
      if (k + j >= n) v[j] = 0;
    }
    if (lanes.data) lanes.put_four(lanes.at(t, k), {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])});
    else if (!tiles.data) put(out, k, {v[0], v[1], v[2], v[3]});
    else
#pragma unroll
      for (int j = 0; j < 4; j += 2) *reinterpret_cast<uint32_t*>(row_of_tiles + row_place(t, k + j, tiles.halves)) = pack_bf16(v[j], v[j + 1]);
  }
  if (!tiles.data) return;
  for (int k = (n + 3) / 4 * 4 + 2 * int(threadIdx.x); k < 64 * n_units; k += 2 * kNormThreads) *reinterpret_cast<uint32_t*>(row_of_tiles + row_place(t, k, tiles.halves)) = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < 8 * n_units; i += kNormThreads)
    *reinterpret_cast<uint4*>(tiles.data + line_place(t, 64 * (i / 8), n_units) + i % 8 * 16) = reinterpret_cast<const uint4*>(row_of_tiles)[i];
}

}  // namespace

void add_norm(const AddNorm& op, const NormedAs& as, const Launch& l) {
  if (op.out.rows == 0) return;
  if (as.tiles && norm_many_takes(op)) return norm_many(op, as.tiles, as.factors, l);
  const int64_t n = op.x.cols, chunk = 4 * kNormThreads;
  const auto kernel = n <= chunk ? add_norm_kernel<1> : n <= 2 * chunk ? add_norm_kernel<2> : n <= 4 * chunk ? add_norm_kernel<4> : n <= 8 * chunk ? add_norm_kernel<8> : add_norm_kernel<16>;
  launch_kernel(kernel, op.out.rows, kNormThreads, as.tiles ? int((n + 63) / 64 * 128) : 0, l.stream, op, as);
}

}  // namespace ridge::cuda
