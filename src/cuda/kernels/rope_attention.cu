// Between the projections and the output matrix of single tokens, in one kernel: norms and rotation of the new heads, their K and V into pages, and attention in the arithmetic
// of lib/flash.h, bit for bit what the kernels of their own give. A block of eight warps takes one row, one KV head with the query heads that share it, and one tile of
// 128 positions: each warp scores 16 of them, and sums weights times V for 16 dimensions. K and V of earlier steps are on their way before the projections are waited
// for; every tile norms and rotates its queries for itself, which costs less than a kernel in between. Whoever finishes a row's last tile folds them.
#include <cstdlib>

#include "cuda/kernels/flash.h"
#include "cuda/lib/flash_mma.h"
#include "cuda/lib/head.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

constexpr int kMaxRows = 8;

struct RopeAttention {
  PagedAttention op;
  RopeStore rope;
  HeadWeights q_norm, k_norm;
  int n_tiles;                                                              // of a row, at most
  float* partial;                                                           // [row][tile][head][m, l, o of head_dim]
  uint32_t* n_done;                                                         // [row][kv head] tiles; zero before and after
};

template <int kDim>
struct AttentionArea {
  static constexpr int kWeightStride = kFlashTile / 2 + 4, kSumStride = kFlashTile + 8, kQueryStride = kDim + 8;        // words a row
  std::byte keys[kFlashTile * 2 * kDim], values[kFlashTile * 2 * kDim];     // chunk c of row r lies at c ^ (r % 8)
  union {
    uint32_t weights[16 * kWeightStride];                                   // p as operands
    float heads[8][kDim];                                                   // earlier: a head of each warp
  };
  union {
    float sums[16 * kSumStride];                                            // p in f32
    float queries[16 * kQueryStride];                                       // earlier
  };
  float tops[8][16];
  bool last;
};

__device__ inline void fetch_line(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }

template <class T, int kDim>
__device__ void fold_row(const RopeAttention& a, int row, int kv_head, int first_tile, int last_tile) {
  constexpr int kOwn = kDim / 64, kAhead = 8;                                // kOwn: pairs a lane
  const int lane = threadIdx.x % 32, share = a.op.n_heads / a.op.n_kv_heads;
  const float factor = exponent_factor(a.op);
  const float* sinks = reinterpret_cast<const float*>(a.op.sinks.data);
  for (int head = kv_head * share + threadIdx.x / 32; head < (kv_head + 1) * share; head += 8) {
    const float* from = a.partial + (int64_t{row} * a.n_tiles * a.op.n_heads + head) * (kDim + 2);
    float m = -CUDART_INF_F, l = 0;
    float2 o[kOwn] = {};
    for (int first = first_tile; first <= last_tile; first += kAhead) {
      float2 state[kAhead], v[kAhead][kOwn];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float2* part = reinterpret_cast<const float2*>(from + int64_t{min(first + i, last_tile)} * a.op.n_heads * (kDim + 2));
        state[i] = __ldcg(part);
#pragma unroll
        for (int j = 0; j < kOwn; ++j) v[i][j] = __ldcg(part + 1 + j * 32 + lane);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i > last_tile) break;
        float keep, take;
        fold(m, l, state[i].x, state[i].y, factor, keep, take);
#pragma unroll
        for (int j = 0; j < kOwn; ++j) o[j] = {folded(o[j].x, v[i][j].x, keep, take), folded(o[j].y, v[i][j].y, keep, take)};
      }
    }
    const float norm = norm_of(m, l, factor, sinks ? sinks + head : nullptr);
    float* out = reinterpret_cast<float*>(a.op.out.data + row * a.op.out.stride) + head * kDim;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) *reinterpret_cast<float2*>(out + j * 64 + 2 * lane) = {__fmul_rn(o[j].x, norm), __fmul_rn(o[j].y, norm)};
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(kNormThreads) rope_attention_kernel(const __grid_constant__ RopeAttention a, const __grid_constant__ StepView step) {
  using Area = AttentionArea<kDim>;
  constexpr int kRowBytes = 2 * kDim, kChunks = kDim / 8, kThreads = kNormThreads, kOwn = kDim / 32;
  extern __shared__ __align__(1024) std::byte memory[];
  Area& s = *reinterpret_cast<Area*>(memory);
  start_dependents();
  const PagedAttention& op = a.op;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int share = op.n_heads / op.n_kv_heads, tile = blockIdx.x, kv_head = blockIdx.y, row = blockIdx.z, start = tile * kFlashTile;
  const int position = step.positions[row], from = op.window > 0 ? max(0, position - op.window + 1) : 0, to = position + 1;        // it sees [from, to)
  if (start + kFlashTile <= from || start >= to) return;
  const StepSeq& seq = step.seqs[step.seq_of[row]];
  const int32_t* pages = step.pages + seq.first_page[op.kv.group];
  const int first_new = seq.n_context - seq.n_rows, first_row = seq.first_row;       // from there on this step has K and V, of rows from first_row on

  // Rows [begin, end) of the tile from their pages; zeros for those that are not seen.
  const auto fetch = [&](int plane, std::byte* area, int begin, int end) {
#pragma unroll 4
    for (int i = begin * kChunks + int(threadIdx.x); i < end * kChunks; i += kThreads) {
      const int r = i / kChunks, c = i % kChunks, p = start + r;
      const bool valid = p >= from && p < to;
      const std::byte* source = op.kv.base;
      if (valid) source = op.kv.plane(plane, pages[p / op.kv.page_size]) + 2 * (int64_t{kv_head} * op.kv.page_size + p % op.kv.page_size) * kDim + c * 16;
      copy_chunk(area + r * kRowBytes + ((c ^ (r & 7)) << 4), source, valid);
    }
  };
  const int n_old = min(max(first_new - start, 0), kFlashTile), n_here = min(to - start, kFlashTile), n_new = max(n_here - n_old, 0);
  fetch(0, s.keys, 0, n_old);
  fetch(1, s.values, 0, n_old);
  fetch(0, s.keys, max(n_old, n_here), kFlashTile);
  fetch(1, s.values, max(n_old, n_here), kFlashTile);
  commit_chunks();
  if (warp == 1 && lane * 32 < kDim && a.q_norm.weight) fetch_line(a.q_norm.weight + kv_head * share * a.q_norm.head_stride + lane * 32);
  if (warp == 2 && lane * 32 < kDim && a.k_norm.weight) fetch_line(a.k_norm.weight + kv_head * a.k_norm.head_stride + lane * 32);
  await_predecessors();
  // Needed once the heads are normed. Not before: what others write must not be in the first-level cache by then.
  if (lane * 32 < kDim && a.rope.angles.data) fetch_line(reinterpret_cast<const float*>(a.rope.angles.data + row * a.rope.angles.stride) + lane * 32);

  // The queries, then K and V of each new position of the tile.
  for (int item = warp; item < share + 2 * n_new; item += 8) {
    const bool is_q = item < share, is_k = !is_q && (item - share) % 2 == 0;
    const int r = is_q ? 0 : n_old + (item - share) / 2, p = start + r, of_row = is_q ? row : first_row + p - first_new, h = is_q ? kv_head * share + item : kv_head;
    const Tensor& source = is_q ? a.rope.q : is_k ? a.rope.k : a.rope.v;
    const float* x = reinterpret_cast<const float*>(source.data + of_row * source.stride) + h * kDim;
    const float* angles = a.rope.angles.data ? reinterpret_cast<const float*>(a.rope.angles.data + of_row * a.rope.angles.stride) : nullptr;
    const HeadWeights& norm = is_q ? a.q_norm : a.k_norm;
    const bool normed = norm.weight && (is_q || is_k);
    float value[kOwn], weight[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) value[i] = __ldcg(x + lane + 32 * i);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) weight[i] = normed ? norm.weight[h * norm.head_stride + lane + 32 * i] : 0.0f;
    if (normed) norm_head(value, weight, norm, kDim);
    if (angles && (is_q || is_k)) rotate_head(value, s.heads[warp], angles, kDim, a.rope.n_rot, a.rope.style);
    const int plane = is_k ? 0 : 1;
    std::byte* in_page = nullptr;                                          // a row keeps its own
    if (!is_q && of_row == row) in_page = op.kv.plane(plane, pages[p / op.kv.page_size]) + 2 * (int64_t{kv_head} * op.kv.page_size + p % op.kv.page_size) * kDim;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int d = lane + 32 * i;
      if (is_q) {
        s.queries[item * Area::kQueryStride + d] = value[i];
        continue;
      }
      const float seen = p >= from ? value[i] : 0.0f;
      put((is_k ? s.keys : s.values) + r * kRowBytes + ((d / 8 ^ (r & 7)) << 4), op.kv.planes[plane].format, d % 8, seen);
      if (in_page) put(in_page, op.kv.planes[plane].format, d, value[i]);
    }
  }
  await_chunks<0>();
  __syncthreads();

  // Position 16 warp + 8 j + 2 q + e of the tile is scores[4 j + 2 r + e].
  float scores[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) scores[i] = 0;
  {
    uint32_t queries[kDim / 16][4];
    load_queries<T>(queries, q, [&](int r) { return g + 8 * r < share ? s.queries + (g + 8 * r) * Area::kQueryStride : nullptr; });
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      // Matrices: positions 0-7 at both halves of the 16 dimensions, then positions 8-15.
      const int r = warp * 16 + lane / 16 * 8 + lane % 8, c = 2 * k + lane / 8 % 2;
      uint32_t b[4];
      load_four_matrices<false>(b, s.keys + r * kRowBytes + ((c ^ (r & 7)) << 4));
      flash_mma<T>(scores, queries[k], b[0], b[1]);
      flash_mma<T>(scores + 4, queries[k], b[2], b[3]);
    }
  }
  if (op.softcap > 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) scores[i] = op.softcap * tanhf(scores[i] * op.scale / op.softcap);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int p = start + 16 * warp + 8 * j + 2 * q + e;
      if (p < from || p >= to) scores[4 * j + e] = scores[4 * j + 2 + e] = -CUDART_INF_F;
    }
  float top[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    top[r] = fmaxf(fmaxf(scores[2 * r], scores[2 * r + 1]), fmaxf(scores[4 + 2 * r], scores[4 + 2 * r + 1]));
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
    if (q == 0) s.tops[warp][g + 8 * r] = top[r];
  }
  __syncthreads();
  const float factor = exponent_factor(op);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = g + 8 * r;
    top[r] = s.tops[0][head];
#pragma unroll
    for (int w = 1; w < 8; ++w) top[r] = fmaxf(top[r], s.tops[w][head]);
    const float base = top[r] == -CUDART_INF_F ? 0.0f : __fmul_rn(top[r], factor);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float e0 = exp2_fast(fmaf(scores[4 * j + 2 * r], factor, -base)), e1 = exp2_fast(fmaf(scores[4 * j + 2 * r + 1], factor, -base));
      s.weights[head * Area::kWeightStride + 8 * warp + 4 * j + q] = pack<T>(e0, e1);
      *reinterpret_cast<float2*>(s.sums + head * Area::kSumStride + 16 * warp + 8 * j + 2 * q) = {e0, e1};
    }
  }
  __syncthreads();

  float* const part = a.partial + ((int64_t{row} * a.n_tiles + tile) * op.n_heads + kv_head * share) * (kDim + 2);
  if (warp < kDim / 16) {                                                  // 16 dimensions a warp
    float out[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = 0;
#pragma unroll
    for (int t = 0; t < kFlashTile / 16; ++t) {
      uint32_t p[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) p[i] = s.weights[(g + 8 * (i % 2)) * Area::kWeightStride + 8 * t + 4 * (i / 2) + q];
      // Matrices: positions 0-7 and 8-15 at the first 8 dimensions, then at the next.
      const int r = t * 16 + lane / 8 % 2 * 8 + lane % 8, c = 2 * warp + lane / 16;
      uint32_t b[4];
      load_four_matrices<true>(b, s.values + r * kRowBytes + ((c ^ (r & 7)) << 4));
      flash_mma<T>(out, p, b[0], b[1]);
      flash_mma<T>(out + 4, p, b[2], b[3]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (g + 8 * r >= share) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j)
        *reinterpret_cast<float2*>(part + (g + 8 * r) * (kDim + 2) + 2 + warp * 16 + 8 * j + 2 * q) = {out[4 * j + 2 * r], out[4 * j + 2 * r + 1]};
    }
  }
  if (warp == 7) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // In the order of softmax_tile: a lane's even and odd positions, then lanes.
      const int head = g + 8 * r;
      float even = 0, odd = 0;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 v = *reinterpret_cast<const float2*>(s.sums + head * Area::kSumStride + 8 * j + 2 * q);
        even = __fadd_rn(even, v.x);
        odd = __fadd_rn(odd, v.y);
      }
      float sum = __fadd_rn(even, odd);
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
      if (q == 0 && head < share) *reinterpret_cast<float2*>(part + head * (kDim + 2)) = {top[r], sum};
    }
  }
  __syncthreads();
  const int first_tile = from / kFlashTile, last_tile = (to - 1) / kFlashTile;
  if (threadIdx.x == 0) {
    uint32_t* n_done = a.n_done + row * op.n_kv_heads + kv_head;
    __threadfence();
    s.last = atomicAdd(n_done, 1u) == uint32_t(last_tile - first_tile);
    if (s.last) *n_done = 0;
    __threadfence();
  }
  __syncthreads();
  if (s.last) fold_row<T, kDim>(a, row, kv_head, first_tile, last_tile);
}


template <class T, int kDim>
void launch(const RopeAttention& a, const Launch& l) {
  const auto kernel = rope_attention_kernel<T, kDim>;
  constexpr int kBytes = int(sizeof(AttentionArea<kDim>));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  launch_kernel(kernel, dim3(a.n_tiles, a.op.n_kv_heads, a.op.q.rows), kNormThreads, kBytes, l.stream, a, l.step);
}

int tiles(const Launch& l) { return (l.max_context + kFlashTile - 1) / kFlashTile; }

}  // namespace

int64_t rope_attention_counters(const PagedAttention& op) { return int64_t{4} * kMaxRows * op.n_kv_heads; }

bool rope_attention_takes(const RopeStore& rope, const PagedAttention& op, const Launch& l) {
  static const bool off = std::getenv("RIDGE_UNFUSED");
  return !off && decode_attention_takes(op, l) && op.q.rows <= kMaxRows && (op.head_dim == 64 || op.head_dim == 128) && op.q.rows * op.n_kv_heads * tiles(l) <= 2 * l.n_sms && rope.k && rope.v &&
         rope.q.data == op.q.data && rope.q.rows == op.q.rows && rope.kv.base == op.kv.base && rope.head_dim == op.head_dim && rope.v_dim == op.head_dim && rope.n_heads == op.n_heads &&
         rope.n_kv_heads == op.n_kv_heads;
}

void rope_attention(const RopeStore& rope, const HeadNorm* q_norm, const HeadNorm* k_norm, const PagedAttention& op, const Launch& l) {
  const RopeAttention a{.op = op, .rope = rope, .q_norm = head_weights(q_norm, op.head_dim), .k_norm = head_weights(k_norm, op.head_dim), .n_tiles = tiles(l), .partial = l.attention_scratch,
                        .n_done = l.tiles_done};
  const bool half = op.kv.planes[0].format == FormatId::f16;
  if (op.head_dim == 64) half ? launch<__half, 64>(a, l) : launch<__nv_bfloat16, 64>(a, l);
  else half ? launch<__half, 128>(a, l) : launch<__nv_bfloat16, 128>(a, l);
}

}  // namespace ridge::cuda
