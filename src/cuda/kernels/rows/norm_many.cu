// The rms norm before a matmul of many tokens (sm_90), with what is pending added on the way. It is bound by bandwidth: 14 bytes a number, of which loads by threads had
// too few on their way (2 TB/s of 4.3). Here blocks stay, two or three a multiprocessor, and the copy engine brings their next rows into shared memory while they are at
// one. The arithmetic is that of lib/row_norm.h; where the matmul multiplies its sums with a row's factor, the row is not. The last row comes first: its numbers were written
// last and may still lie in the second-level cache, and the matmul begins with the first ones.
//
// A row's 16-byte chunk of the tiles (lib/tiles.h) has pairs of numbers from four lanes; lanes trade pairs with their neighbour by four, so that sixteen of them write a line.
#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/mma.h"
#include "cuda/lib/row_norm.h"
#include "cuda/lib/tiles.h"

namespace ridge::cuda {
namespace {

constexpr int kMostStages = 4;
template <int kOwn>
constexpr int kBlocksOfSm = kOwn > 4 ? 2 : 3;                               // by the registers
template <int kOwn>
constexpr int kRingBytes = (216 << 10) / kBlocksOfSm<kOwn>;

// kOwn: chunks of four numbers that a thread holds. Dynamic shared memory: [stage][x, pending] a row.
template <int kOwn>
__global__ void __launch_bounds__(kNormThreads, kBlocksOfSm<kOwn>) norm_many_kernel(const __grid_constant__ AddNorm op, Tiles tiles, float* factors, int n_stages) {
#if defined(RIDGE_SM90)
  RIDGE_DYNAMIC_SHARED(ring_memory, 16);
  __shared__ Barrier full[kMostStages];
  alignas(16) __shared__ float shared[kNormThreads / 32];
  start_dependents();
  const int n = int(op.x.cols), n_units = n / 64, lane = threadIdx.x % 32;
  const bool adds = op.pending.data != nullptr;
  const int row_bytes = 4 * n, stage_bytes = adds ? 2 * row_bytes : row_bytes;
  std::byte* const ring = ring_memory;
  const auto place = [](int i) { return 4 * (int(threadIdx.x) + i * kNormThreads); };
  const auto ask = [&](int stage, int t) {
    std::byte* const to = ring + stage * stage_bytes;
    arrive_expecting(&full[stage], stage_bytes);
    copy_bulk(to, op.x.data + t * op.x.stride, row_bytes, &full[stage]);
    if (adds) copy_bulk(to + row_bytes, op.pending.data + t * op.pending.stride, row_bytes, &full[stage]);
  };
  float4 weight[kOwn];                                                      // of the thread's places, in every row
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    float4& w = weight[i] = {1, 1, 1, 1};
    if (op.weight.data && place(i) < n) {
      w = reinterpret_cast<const float4*>(op.weight.data)[place(i) / 4];
      w = {w.x + op.weight_offset, w.y + op.weight_offset, w.z + op.weight_offset, w.w + op.weight_offset};
    }
  }
  if (threadIdx.x == 0) {
    for (int s = 0; s < kMostStages; ++s) init_barrier(&full[s], 1);
    publish_barriers();
  }
  __syncthreads();
  await_predecessors();
  const int step = int(gridDim.x);
  int t = int(op.out.rows) - 1 - int(blockIdx.x), stage = 0;
  uint32_t phase = 0;
  if (threadIdx.x == 0)
    for (int s = 0; s < n_stages && t - s * step >= 0; ++s) ask(s, t - s * step);

  // Where the lane's pair of words goes in a line: an even chunk, or the next one for odd quarters, of the quarters' lower or upper two. The other quarter of a pair is so many lanes away.
  const int to_pair = tiles.halves ? 2 : 4;
  const bool odd = lane / to_pair % 2;
  const int chunk = (tiles.halves ? lane / 8 % 2 * 4 + lane % 2 * 2 : lane % 4 * 2) + odd, in_chunk = lane / to_pair / 2 % 2 * 8;
#pragma unroll 1
  for (; t >= 0; t -= step) {
    await(&full[stage], phase);
    const float4* const row = reinterpret_cast<const float4*>(ring + stage * stage_bytes) + threadIdx.x;
    float4 own[kOwn], more[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = place(i) < n ? row[i * kNormThreads] : float4{0, 0, 0, 0};
    if (adds) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) more[i] = place(i) < n ? row[n / 4 + i * kNormThreads] : float4{0, 0, 0, 0};
      float4* const to = reinterpret_cast<float4*>(op.x.data + t * op.x.stride) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        float4& v = own[i];
        v = {fmaf(op.pending_scale, more[i].x, v.x), fmaf(op.pending_scale, more[i].y, v.y), fmaf(op.pending_scale, more[i].z, v.z), fmaf(op.pending_scale, more[i].w, v.w)};
        if (place(i) < n) to[i * kNormThreads] = v;
      }
    }
    float squares[2] = {};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) squares[i % 2] += tile_squares(own[i]);
    float factor = rms_factor(sum_of_warps(warp_squares(squares), shared), n, op.eps);
    if (factors) {
      if (threadIdx.x == 0) factors[t] = factor;
      factor = 1;
    }
    if (threadIdx.x == 0 && t - n_stages * step >= 0) ask(stage, t - n_stages * step);          // all have read the row
    std::byte* const line = tiles.data + line_place(t, 0, n_units) + ((chunk ^ (t & 7)) << 4) + in_chunk;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float4 v = own[i], w = weight[i];
      const uint32_t first = pack_bf16(v.x * factor * w.x, v.y * factor * w.y), second = pack_bf16(v.z * factor * w.z, v.w * factor * w.w);
      const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? first : second, to_pair);
      if (place(i) < n) *reinterpret_cast<uint2*>(line + line_place(0, place(i), n_units)) = odd ? uint2{other, second} : uint2{first, other};
    }
    if (++stage == n_stages) stage = 0, phase ^= 1;
  }
#endif
}

template <int kOwn>
void launch(const AddNorm& op, Tiles tiles, float* factors, const Launch& l) {
  const int stage_bytes = int(op.x.cols) * (op.pending.data ? 8 : 4), n_stages = std::clamp(kRingBytes<kOwn> / stage_bytes, 1, kMostStages);
  cudaFuncSetAttribute(norm_many_kernel<kOwn>, cudaFuncAttributeMaxDynamicSharedMemorySize, kRingBytes<kOwn>);
  launch_kernel(norm_many_kernel<kOwn>, std::min(int(op.out.rows), kBlocksOfSm<kOwn> * l.n_sms), kNormThreads, n_stages * stage_bytes, l.stream, op, tiles, factors, n_stages);
}

}  // namespace

bool norm_many_takes(const AddNorm& op) {
  const auto aligned = [](const Tensor& t) { return t.stride % 16 == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0; };
  return op.kind == NormKind::rms && !op.bias && op.x.cols % 128 == 0 && op.x.cols <= 8192 && aligned(op.x) && aligned(op.pending) && aligned(op.weight);
}

void norm_many(const AddNorm& op, Tiles tiles, float* factors, const Launch& l) {
  const int64_t n = op.x.cols, chunk = 4 * kNormThreads;
  n <= chunk ? launch<1>(op, tiles, factors, l) : n <= 2 * chunk ? launch<2>(op, tiles, factors, l) : n <= 4 * chunk ? launch<4>(op, tiles, factors, l) : launch<8>(op, tiles, factors, l);
}

}  // namespace ridge::cuda
