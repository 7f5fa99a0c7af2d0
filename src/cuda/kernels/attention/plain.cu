// Paged attention in f32 products, for every format and width of head (cuda/kernels/attention/flash.h is the fast one where it applies). A block takes one query row, one KV head
// with the g query heads that share it, and a run of positions, in tiles of 64 (32 where heads are wider than 256: they would not fit); K and V tiles go
// through shared memory once and serve all g heads. Positions are cut at absolute multiples of 256 into splits whose results (max, sum, weighted V) are merged
// in order of position: by a second kernel when few rows leave the machine idle, or inside the block when there are many. Both ways add alike, so a row's
// result does not depend on the batch.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>

#include "cuda/kernels/attention/flash.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/flash_fp8.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/reduce.h"

namespace ridge::cuda {
namespace {

constexpr int kSplit = 256, kThreads = 128, kMaxGroup = 16;
constexpr int kOwn = 32;                                                    // output elements a thread may own: g * v_dim <= 4096
constexpr int kMostShared = 160 << 10;                                      // bytes a block may ask for on sm_80, sm_90 and sm_100
constexpr int kManyRows = 64;                                               // from here on a block walks all splits itself

template <class T> __device__ float widen(T v);
template <> __device__ float widen(float v) { return v; }
template <> __device__ float widen(__half v) { return __half2float(v); }
template <> __device__ float widen(__nv_bfloat16 v) { return __bfloat162float(v); }

// Number d of a head's row of a page: `place` is kv_head * page_size + position in the page.
template <class T>
__device__ float number(const KvRef& kv, int plane, int32_t page, int64_t place, int dim, int d) {
  if constexpr (kIsFp8<T>) {
    const __half_raw code = __nv_cvt_fp8_to_halfraw(reinterpret_cast<const uint8_t*>(kv.plane(plane, page))[place * dim + d], __NV_E4M3);
    return __half2float(__half(code)) * reinterpret_cast<const float*>(kv.scales(plane, page))[place];
  } else {
    return widen(reinterpret_cast<const T*>(kv.plane(plane, page))[place * dim + d]);
  }
}

// A running softmax absorbs a later part: both are scaled to the larger maximum. Nothing seen yet is m = -FLT_MAX.
__device__ void merge_factors(float& m, float m2, float& keep, float& take) {
  const float top = fmaxf(m, m2);
  keep = m == -FLT_MAX ? 0.0f : expf(m - top);
  take = m2 == -FLT_MAX ? 0.0f : expf(m2 - top);
  m = top;
}

// The same rounding in both kernels that merge.
__device__ float merged(float sum, float keep, float part, float take) { return fmaf(sum, keep, __fmul_rn(part, take)); }

// Per query head of the group: maximum, sum, and the factors of the last merge.
struct SoftmaxState { float m[kMaxGroup], l[kMaxGroup], keep[kMaxGroup], take[kMaxGroup]; };

// The first position that a token at `position` sees: a window reaches back from it, a chunk begins at a multiple of its length.
__device__ int first_seen_by(const PagedAttention& op, int position) {
  const int first = op.window > 0 ? max(0, position - op.window + 1) : 0;
  return op.chunk > 0 ? max(first, position - position % op.chunk) : first;
}

// Dynamic shared memory: q [g][head_dim], K tile [kTile][head_dim + 4], V tile [kTile][v_dim], scores [g][kTile].
constexpr int tile_for(const PagedAttention& op) { return op.head_dim > 256 || op.v_dim > 256 ? 32 : 64; }
constexpr int64_t shared_bytes(const PagedAttention& op) {
  const int64_t g = op.n_heads / op.n_kv_heads, tile = tile_for(op);
  return 4 * (g * op.head_dim + tile * (op.head_dim + 4) + tile * op.v_dim + g * tile);
}

template <class T, int kTile>
__global__ void __launch_bounds__(kThreads) attention_kernel(PagedAttention op, StepView step, float* partial, int n_splits, bool walk) {
  follow();
  extern __shared__ float shared[];
  __shared__ SoftmaxState split_state, total_state;
  const int row = blockIdx.x, kv_head = blockIdx.y, g = op.n_heads / op.n_kv_heads;
  const int hd = op.head_dim, vd = op.v_dim, key_stride = hd + 4, page_size = op.kv.page_size;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* q = shared;
  float* keys = q + g * hd;
  float* values = keys + kTile * key_stride;
  float* scores = values + kTile * vd;

  const StepSeq& seq = step.seqs[step.seq_of[row]];
  const int position = step.positions[row];
  const int first_seen = first_seen_by(op, position);
  if (!walk && (int(blockIdx.z) < first_seen / kSplit || int(blockIdx.z) > position / kSplit)) return;
  const int32_t* pages = step.pages + seq.first_page[op.kv.group];
  const float* q_row = reinterpret_cast<const float*>(op.q.data + row * op.q.stride) + kv_head * g * hd;
  for (int i = threadIdx.x; i < g * hd; i += kThreads) q[i] = q_row[i];
  if (threadIdx.x < g) total_state.m[threadIdx.x] = -FLT_MAX, total_state.l[threadIdx.x] = 0;

  // A thread owns the output elements threadIdx.x + j * kThreads of the g * v_dim.
  float out[kOwn], total[kOwn];
#pragma unroll
  for (int j = 0; j < kOwn; ++j) total[j] = 0;

  const int split_from = walk ? first_seen / kSplit : blockIdx.z, split_to = walk ? position / kSplit + 1 : blockIdx.z + 1;
  for (int split = split_from; split < split_to; ++split) {
    const int from = max(split * kSplit, first_seen), to = min((split + 1) * kSplit, position + 1);
    if (threadIdx.x < g) split_state.m[threadIdx.x] = -FLT_MAX, split_state.l[threadIdx.x] = 0;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) out[j] = 0;
    for (int tile = from / kTile * kTile; tile < to; tile += kTile) {
      __syncthreads();
      for (int i = threadIdx.x; i < kTile * hd; i += kThreads) {
        const int p = tile + i / hd, d = i % hd;
        const bool seen = p >= from && p < to;
        keys[i / hd * key_stride + d] = seen ? number<T>(op.kv, 0, pages[p / page_size], int64_t{kv_head} * page_size + p % page_size, hd, d) : 0.0f;
      }
      for (int i = threadIdx.x; i < kTile * vd; i += kThreads) {
        const int p = tile + i / vd, d = i % vd;
        const bool seen = p >= from && p < to;
        values[i] = seen ? number<T>(op.kv, 1, pages[p / page_size], int64_t{kv_head} * page_size + p % page_size, vd, d) : 0.0f;
      }
      __syncthreads();
      // Scores: a thread takes one position and every second head (every fourth in tiles of 32).
      const int p = threadIdx.x % kTile;
      for (int h = threadIdx.x / kTile; h < g; h += kThreads / kTile) {
        float s = 0;
        for (int d = 0; d < hd; ++d) s = fmaf(q[h * hd + d], keys[p * key_stride + d], s);
        s *= op.scale;
        if (op.softcap > 0) s = op.softcap * tanhf(s / op.softcap);
        scores[h * kTile + p] = tile + p >= from && tile + p < to ? s : -FLT_MAX;
      }
      __syncthreads();
      for (int h = warp; h < g; h += kThreads / 32) {
        const float a = scores[h * kTile + lane], b = kTile > 32 ? scores[h * kTile + 32 + lane] : -FLT_MAX;
        const float before = split_state.m[h], top = fmaxf(before, warp_max(fmaxf(a, b)));
        const float pa = a == -FLT_MAX ? 0.0f : expf(a - top), pb = b == -FLT_MAX ? 0.0f : expf(b - top);
        scores[h * kTile + lane] = pa;
        if (kTile > 32) scores[h * kTile + 32 + lane] = pb;
        const float sum = warp_sum(pa + pb);
        __syncwarp();                                                       // all lanes have read the maximum before
        if (lane == 0) {
          const float keep = before == -FLT_MAX ? 0.0f : expf(before - top);
          split_state.keep[h] = keep;
          split_state.l[h] = fmaf(split_state.l[h], keep, sum);
          split_state.m[h] = top;
        }
      }
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        const int e = threadIdx.x + j * kThreads;
        if (e >= g * vd) break;
        const int h = e / vd, d = e % vd;
        float sum = out[j] * split_state.keep[h];
#pragma unroll 8                                                            // of all 32 elements: as a whole it took the compiler a minute
        for (int i = 0; i < kTile; ++i) sum = fmaf(scores[h * kTile + i], values[i * vd + d], sum);
        out[j] = sum;
      }
    }
    __syncthreads();
    if (!walk) {
      float* to_partial = partial + ((int64_t{row} * n_splits + split) * op.n_heads + kv_head * g) * (vd + 2);
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        const int e = threadIdx.x + j * kThreads;
        if (e < g * vd) to_partial[e / vd * (vd + 2) + 2 + e % vd] = out[j];
      }
      if (threadIdx.x < g) {
        to_partial[threadIdx.x * (vd + 2)] = split_state.m[threadIdx.x];
        to_partial[threadIdx.x * (vd + 2) + 1] = split_state.l[threadIdx.x];
      }
      return;
    }
    if (threadIdx.x < g) {
      const int h = threadIdx.x;
      merge_factors(total_state.m[h], split_state.m[h], total_state.keep[h], total_state.take[h]);
      total_state.l[h] = merged(total_state.l[h], total_state.keep[h], split_state.l[h], total_state.take[h]);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int e = threadIdx.x + j * kThreads;
      if (e < g * vd) total[j] = merged(total[j], total_state.keep[e / vd], out[j], total_state.take[e / vd]);
    }
  }
  float* to_out = reinterpret_cast<float*>(op.out.data + row * op.out.stride) + kv_head * g * vd;
  const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    const int e = threadIdx.x + j * kThreads;
    if (e >= g * vd) break;
    const int h = e / vd;
    const float l = total_state.l[h] + (sinks ? expf(sinks[kv_head * g + h] - total_state.m[h]) : 0.0f);
    to_out[e] = total[j] / l;
  }
}

__global__ void merge_kernel(PagedAttention op, StepView step, const float* partial, int n_splits) {
  follow();
  const int row = blockIdx.x, h = blockIdx.y, vd = op.v_dim;
  const int position = step.positions[row];
  const int first_seen = first_seen_by(op, position);
  const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
  for (int d = threadIdx.x; d < vd; d += blockDim.x) {
    float m = -FLT_MAX, l = 0, o = 0;
    for (int split = first_seen / kSplit; split <= position / kSplit; ++split) {
      const float* from = partial + ((int64_t{row} * n_splits + split) * op.n_heads + h) * (vd + 2);
      float keep, take;
      merge_factors(m, from[0], keep, take);
      l = merged(l, keep, from[1], take);
      o = merged(o, keep, from[2 + d], take);
    }
    if (sinks) l += expf(sinks[h] - m);
    reinterpret_cast<float*>(op.out.data + row * op.out.stride)[h * vd + d] = o / l;
  }
}

template <class T, int kTile>
void launch_tiles(const PagedAttention& op, const Launch& l) {
  const int n_rows = int(op.q.rows), bytes = int(shared_bytes(op));
  cudaFuncSetAttribute(attention_kernel<T, kTile>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const bool walk = n_rows >= kManyRows;
  const int n_splits = walk ? 1 : (l.max_context + kSplit - 1) / kSplit;
  launch_kernel(attention_kernel<T, kTile>, dim3(n_rows, op.n_kv_heads, n_splits), kThreads, bytes, l.stream, op, l.step, l.attention_scratch, n_splits, walk);
  if (!walk) launch_kernel(merge_kernel, dim3(n_rows, op.n_heads), 128, 0, l.stream, op, l.step, l.attention_scratch, n_splits);
}

template <class T>
void launch(const PagedAttention& op, const Launch& l) {
  tile_for(op) == 32 ? launch_tiles<T, 32>(op, l) : launch_tiles<T, 64>(op, l);
}

}  // namespace

bool paged_attention_supports(const PagedAttention& op) {
  const int g = op.n_heads / op.n_kv_heads;
  return !op.value_in_key && !op.selected && !op.entries.base && g <= kMaxGroup && g * op.v_dim <= kOwn * kThreads && shared_bytes(op) <= kMostShared;
}

int64_t attention_scratch_needed(const PagedAttention& op, const Launch& l) {
  if (flash_supports(op)) return flash_scratch_needed(op, l);
  if (op.q.rows >= kManyRows) return 0;
  return int64_t{4} * op.q.rows * ((l.max_context + kSplit - 1) / kSplit) * op.n_heads * (op.v_dim + 2);
}

bool attention_tiles(const PagedAttention& op, const Launch& l) { return flash_supports(op) && flash_many_rows_supports(op, l) && l.n_few_rows == 0; }

void paged_attention(const PagedAttention& op, Tiles tiles, const Launch& l) {
  if (op.q.rows == 0) return;
  if (flash_supports(op)) return flash_attention(op, tiles, l);
  switch (op.kv.planes[0].format) {
    case FormatId::f32: launch<float>(op, l); break;
    case FormatId::f16: launch<__half>(op, l); break;
    case FormatId::fp8_e4m3: launch<E4m3>(op, l); break;
    default: launch<__nv_bfloat16>(op, l); break;
  }
}

}  // namespace ridge::cuda
