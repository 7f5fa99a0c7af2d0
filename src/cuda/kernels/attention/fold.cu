// What attention/decode.cu leaves of a row's tiles, o [row][tile][head][kDim] and then m and l [row][tile][head], becomes the row's result: a warp for a head where tiles are
// few, a block for 32 dimensions of it where they are many.
#include "cuda/kernels/attention/flash.h"
#include "cuda/kernels/attention/flash_form.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/flash.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

// One warp folds a head of a row: tiles in order, all of kFoldFewTiles on their way at once.
template <int kDim>
__global__ void __launch_bounds__(32) fold_few_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ Lanes lanes, const __grid_constant__ StepView step, const float* partial, int n_tiles) {
  start_dependents();
  constexpr int kOwn = kDim / 64;                                            // pairs a lane
  const int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x;
  const Seen seen = seen_by(op, step.positions[row]);
  const float factor = exponent_factor(op);
  const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
  const int first = seen.from / kFlashTile, last = (seen.to - 1) / kFlashTile;
  const float2* const states = reinterpret_cast<const float2*>(partial + op.q.rows * int64_t{n_tiles} * op.n_heads * kDim);
  await_predecessors();
  float2 state[kFoldFewTiles], v[kFoldFewTiles][kOwn];
#pragma unroll
  for (int a = 0; a < kFoldFewTiles; ++a) {
    const int64_t at = (int64_t{row} * n_tiles + min(first + a, last)) * op.n_heads + head;
    state[a] = __ldcg(states + at);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) v[a][i] = __ldcg(reinterpret_cast<const float2*>(partial + at * kDim) + i * 32 + lane);
  }
  float m = -CUDART_INF_F, l = 0;
  float2 o[kOwn] = {};
#pragma unroll
  for (int a = 0; a < kFoldFewTiles; ++a) {
    if (first + a > last) break;
    float keep, take;
    fold(m, l, state[a].x, state[a].y, factor, keep, take);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) o[i] = {folded(o[i].x, v[a][i].x, keep, take), folded(o[i].y, v[a][i].y, keep, take)};
  }
  const float norm = norm_of(m, l, factor, sinks ? sinks + head : nullptr);
  float* out = reinterpret_cast<float*>(op.out.data + row * op.out.stride) + head * kDim;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float2 v{__fmul_rn(o[i].x, norm), __fmul_rn(o[i].y, norm)};
    const int d = i * 64 + 2 * lane;
    if (lanes.data) *reinterpret_cast<__nv_bfloat162*>(lanes.at(row, head * kDim + d)) = __float22bfloat162_rn(v);
    else *reinterpret_cast<float2*>(out + d) = v;
  }
}

// A block folds 32 dimensions of a head of a row, all tiles of 32k positions at once. The factors come from the tiles' running maximum, which a scan gives to all
// of them together; then a warp adds the tiles in order.
constexpr int kFoldThreads = 256;
__global__ void __launch_bounds__(kFoldThreads) fold_many_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ Lanes lanes, const __grid_constant__ StepView step, const float* partial,
                                                                int n_tiles) {
  alignas(16) __shared__ float values[kFoldThreads][32];
  __shared__ float2 factors[kFoldThreads];
  __shared__ float sums[kFoldThreads], tops[kFoldThreads / 32];
  start_dependents();
  const int head = blockIdx.x, first_dim = blockIdx.y * 32, row = blockIdx.z, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const Seen seen = seen_by(op, step.positions[row]);
  const float factor = exponent_factor(op);
  const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
  const int last = (seen.to - 1) / kFlashTile;
  const float2* const states = reinterpret_cast<const float2*>(partial + op.q.rows * int64_t{n_tiles} * op.n_heads * op.head_dim);
  float m = -CUDART_INF_F, l = 0, o = 0;
  await_predecessors();
  for (int base = seen.from / kFlashTile; base <= last; base += kFoldThreads) {
    const int n = min(kFoldThreads, last - base + 1);
    const auto place = [&](int tile) { return (int64_t{row} * n_tiles + base + tile) * op.n_heads + head; };
    for (int i = thread; i < n * 8; i += kFoldThreads) copy_chunk(&values[i / 8][i % 8 * 4], partial + place(i / 8) * op.head_dim + first_dim + i % 8 * 4);
    commit_chunks();
    const float2 state = thread < n ? __ldcg(states + place(thread)) : float2{-CUDART_INF_F, 0};
    float top = state.x;                                                     // of all tiles up to the thread's
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, top, d);
      if (lane >= d) top = fmaxf(top, other);
    }
    if (lane == 31) tops[warp] = top;
    float before = __shfl_up_sync(0xffffffffu, top, 1), unused = 0;
    if (lane == 0) before = -CUDART_INF_F;
    __syncthreads();
    before = fmaxf(before, m);
    for (int w = 0; w < kFoldThreads / 32; ++w) {
      if (w < warp) before = fmaxf(before, tops[w]);
      m = fmaxf(m, tops[w]);
    }
    fold(before, unused, state.x, 0, factor, factors[thread].x, factors[thread].y);
    sums[thread] = state.y;
    await_chunks<0>();
    __syncthreads();
    if (warp == 0) {
#pragma unroll 8
      for (int i = 0; i < n; ++i) {
        l = folded(l, sums[i], factors[i].x, factors[i].y);
        o = folded(o, values[i][lane], factors[i].x, factors[i].y);
      }
    }
    __syncthreads();
  }
  if (warp > 0) return;
  const float norm = norm_of(m, l, factor, sinks ? sinks + head : nullptr);
  const int at = head * op.head_dim + first_dim + lane;
  const float v = __fmul_rn(o, norm);
  if (lanes.data) lanes.put(row, at, v);
  else reinterpret_cast<float*>(op.out.data + row * op.out.stride)[at] = v;
}

}  // namespace

void fold_tiles(const PagedAttention& op, int n_tiles, const Lanes& lanes, const Launch& l) {
  const float* const partial = l.attention_scratch;
  if (n_tiles > kFoldFewTiles) return launch_kernel(fold_many_kernel, dim3(op.n_heads, op.head_dim / 32, op.q.rows), kFoldThreads, 0, l.stream, op, lanes, l.step, partial, n_tiles);
  with_form(op, [&]<class T, int kDim>(T, std::integral_constant<int, kDim>) {
    launch_kernel(fold_few_kernel<kDim>, dim3(op.n_heads, op.q.rows), 32, 0, l.stream, op, lanes, l.step, partial, n_tiles);
  });
}

}  // namespace ridge::cuda
