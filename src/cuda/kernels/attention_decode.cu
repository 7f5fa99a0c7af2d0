// Attention for a step of single tokens, where the time from q to the result is what counts: the arithmetic of lib/flash.h, bit for bit. A block of four warps takes one
// row, one KV head with the query heads that share it, and one tile of 128 positions: each warp scores 32 of them, and sums weights times V for a quarter of the
// dimensions. K and V of earlier steps depend on nothing in this one, so they are on their way before the kernel waits for the projections; after the wait there are
// only the new positions and q to load. A second kernel folds the tiles.
#include "cuda/kernels/flash.h"
#include "cuda/lib/flash_mma.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kMaxBlocks = 4096;                                            // beyond, K and V stream anyway, and a warp a tile does with less shared memory
constexpr int kWeightStride = kFlashTile / 2 + 4, kSumStride = kFlashTile + 8;      // words a row of p: as operands, and in f32 for their sum

struct Seen { int from, to; };                                              // positions
__device__ Seen seen_by(const PagedAttention& op, int position) { return {op.window > 0 ? max(0, position - op.window + 1) : 0, position + 1}; }

template <int kDim>
struct Shared {
  std::byte keys[kFlashTile * 2 * kDim], values[kFlashTile * 2 * kDim];     // chunk c of row r lies at c ^ (r % 8)
  uint32_t weights[16 * kWeightStride];
  float sums[16 * kSumStride];
  float tops[kWarps][16];
};

// Scratch: [row][tile][head][m, l, o of kDim].
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) decode_tile_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ StepView step, float* partial) {
  constexpr int kRowBytes = 2 * kDim, kChunks = kDim / 8;
  extern __shared__ __align__(1024) std::byte memory[];
  Shared<kDim>& s = *reinterpret_cast<Shared<kDim>*>(memory);
  start_dependents();
  const int tile = blockIdx.x, kv_head = blockIdx.y, row = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int share = op.n_heads / op.n_kv_heads, start = tile * kFlashTile;
  const Seen seen = seen_by(op, step.positions[row]);
  if (start + kFlashTile <= seen.from || start >= seen.to) return;
  const StepSeq& seq = step.seqs[step.seq_of[row]];
  const int32_t* pages = step.pages + seq.first_page[op.kv.group];
  const int first_new = seq.n_context - seq.n_rows;                         // from here on this step writes K and V

  const auto fetch = [&](int plane, std::byte* to, int from_row, int to_row) {
#pragma unroll 8
    for (int i = from_row * kChunks + int(threadIdx.x); i < to_row * kChunks; i += kThreads) {
      const int r = i / kChunks, c = i % kChunks, p = start + r;
      const bool valid = p >= seen.from && p < seen.to;
      const std::byte* from = op.kv.base;
      if (valid) from = op.kv.plane(plane, pages[p / op.kv.page_size]) + 2 * (int64_t{kv_head} * op.kv.page_size + p % op.kv.page_size) * kDim + c * 16;
      copy_chunk(to + r * kRowBytes + ((c ^ (r & 7)) << 4), from, valid);
    }
  };
  const int n_old = min(max(first_new - start, 0), kFlashTile);
  fetch(0, s.keys, 0, n_old);
  fetch(1, s.values, 0, n_old);
  await_predecessors();
  fetch(0, s.keys, n_old, kFlashTile);
  fetch(1, s.values, n_old, kFlashTile);
  commit_chunks();
  uint32_t queries[kDim / 16][4];
  load_queries<T>(queries, q, [&](int r) {
    const int head = g + 8 * r;
    return head < share ? reinterpret_cast<const float*>(op.q.data + row * op.q.stride) + (kv_head * share + head) * kDim : nullptr;
  });
  await_chunks<0>();
  __syncthreads();

  // Position 32 warp + 8 j + 2 q + e of the tile is scores[4 j + 2 r + e].
  float scores[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) scores[i] = 0;
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      // Matrices: positions 0-7 at both halves of the 16 dimensions, then positions 8-15.
      const int r = warp * 32 + pair * 16 + lane / 16 * 8 + lane % 8, c = 2 * k + lane / 8 % 2;
      uint32_t b[4];
      load_four_matrices<false>(b, s.keys + r * kRowBytes + ((c ^ (r & 7)) << 4));
      flash_mma<T>(scores + 8 * pair, queries[k], b[0], b[1]);
      flash_mma<T>(scores + 8 * pair + 4, queries[k], b[2], b[3]);
    }
  if (op.softcap > 0) {
#pragma unroll
    for (int i = 0; i < 16; ++i) scores[i] = op.softcap * tanhf(scores[i] * op.scale / op.softcap);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int p = start + 32 * warp + 8 * j + 2 * q + e;
      if (p < seen.from || p >= seen.to) scores[4 * j + e] = scores[4 * j + 2 + e] = -CUDART_INF_F;
    }
  float top[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    top[r] = scores[2 * r];
#pragma unroll
    for (int j = 0; j < 4; ++j) top[r] = fmaxf(top[r], fmaxf(scores[4 * j + 2 * r], scores[4 * j + 2 * r + 1]));
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
    if (q == 0) s.tops[warp][g + 8 * r] = top[r];
  }
  __syncthreads();
  const float factor = exponent_factor(op);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = g + 8 * r;
    top[r] = fmaxf(fmaxf(s.tops[0][head], s.tops[1][head]), fmaxf(s.tops[2][head], s.tops[3][head]));
    const float base = top[r] == -CUDART_INF_F ? 0.0f : __fmul_rn(top[r], factor);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float a = exp2_fast(fmaf(scores[4 * j + 2 * r], factor, -base)), b = exp2_fast(fmaf(scores[4 * j + 2 * r + 1], factor, -base));
      s.weights[head * kWeightStride + 16 * warp + 4 * j + q] = pack<T>(a, b);
      *reinterpret_cast<float2*>(s.sums + head * kSumStride + 32 * warp + 8 * j + 2 * q) = {a, b};
    }
  }
  __syncthreads();

  float* const to = partial + ((int64_t{row} * gridDim.x + tile) * op.n_heads + kv_head * share) * (kDim + 2);
  constexpr int kGroups = kDim / 16 / kWarps;                                // of 16 dimensions, a warp's
  float out[kGroups * 8];
#pragma unroll
  for (int i = 0; i < kGroups * 8; ++i) out[i] = 0;
#pragma unroll
  for (int t = 0; t < kFlashTile / 16; ++t) {
    uint32_t p[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) p[i] = s.weights[(g + 8 * (i % 2)) * kWeightStride + 8 * t + 4 * (i / 2) + q];
#pragma unroll
    for (int d = 0; d < kGroups; ++d) {
      // Matrices: positions 0-7 and 8-15 at the first 8 dimensions, then at the next.
      const int r = t * 16 + lane / 8 % 2 * 8 + lane % 8, c = 2 * (warp * kGroups + d) + lane / 16;
      uint32_t b[4];
      load_four_matrices<true>(b, s.values + r * kRowBytes + ((c ^ (r & 7)) << 4));
      flash_mma<T>(out + 8 * d, p, b[0], b[1]);
      flash_mma<T>(out + 8 * d + 4, p, b[2], b[3]);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = g + 8 * r;
    if (warp == 0) {
      // In the order of softmax_tile: a lane's even and odd positions, then lanes.
      float even = 0, odd = 0;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 v = *reinterpret_cast<const float2*>(s.sums + head * kSumStride + 8 * j + 2 * q);
        even = __fadd_rn(even, v.x);
        odd = __fadd_rn(odd, v.y);
      }
      float sum = __fadd_rn(even, odd);
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
      if (q == 0 && head < share) *reinterpret_cast<float2*>(to + head * (kDim + 2)) = {top[r], sum};
    }
    if (head >= share) continue;
#pragma unroll
    for (int j = 0; j < 2 * kGroups; ++j)
      *reinterpret_cast<float2*>(to + head * (kDim + 2) + 2 + warp * kGroups * 16 + 8 * j + 2 * q) = {out[4 * j + 2 * r], out[4 * j + 2 * r + 1]};
  }
}

// One warp folds a head of a row: tiles in order, eight on their way.
template <int kDim>
__global__ void __launch_bounds__(32) decode_fold_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ StepView step, const float* partial, int n_tiles) {
  start_dependents();
  constexpr int kOwn = kDim / 64, kAhead = 8;                                // kOwn: pairs a lane
  const int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x;
  const Seen seen = seen_by(op, step.positions[row]);
  const float factor = exponent_factor(op);
  const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
  const int last = (seen.to - 1) / kFlashTile;
  const float* from = partial + (int64_t{row} * n_tiles * op.n_heads + head) * (kDim + 2);
  float m = -CUDART_INF_F, l = 0;
  float2 o[kOwn] = {};
  await_predecessors();
  for (int first = seen.from / kFlashTile; first <= last; first += kAhead) {
    float2 state[kAhead], v[kAhead][kOwn];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const float2* part = reinterpret_cast<const float2*>(from + int64_t{min(first + a, last)} * op.n_heads * (kDim + 2));
      state[a] = __ldcg(part);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) v[a][i] = __ldcg(part + 1 + i * 32 + lane);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first + a > last) break;
      float keep, take;
      fold(m, l, state[a].x, state[a].y, factor, keep, take);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) o[i] = {folded(o[i].x, v[a][i].x, keep, take), folded(o[i].y, v[a][i].y, keep, take)};
    }
  }
  const float norm = norm_of(m, l, factor, sinks ? sinks + head : nullptr);
  float* out = reinterpret_cast<float*>(op.out.data + row * op.out.stride) + head * kDim;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) *reinterpret_cast<float2*>(out + i * 64 + 2 * lane) = {__fmul_rn(o[i].x, norm), __fmul_rn(o[i].y, norm)};
}

template <class T, int kDim>
void launch(const PagedAttention& op, const Launch& l, int n_tiles) {
  const auto kernel = decode_tile_kernel<T, kDim>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared<kDim>)));
  launch_kernel(kernel, dim3(n_tiles, op.n_kv_heads, op.q.rows), kThreads, int(sizeof(Shared<kDim>)), l.stream, op, l.step, l.attention_scratch);
  launch_kernel(decode_fold_kernel<kDim>, dim3(op.n_heads, op.q.rows), 32, 0, l.stream, op, l.step, static_cast<const float*>(l.attention_scratch), n_tiles);
}

int tiles(const Launch& l) { return (l.max_context + kFlashTile - 1) / kFlashTile; }

}  // namespace

bool decode_attention_takes(const PagedAttention& op, const Launch& l) {
  return flash_supports(op) && op.q.rows > 0 && op.q.rows <= l.n_few_rows && op.q.rows * op.n_kv_heads * tiles(l) <= kMaxBlocks;
}

void decode_attention(const PagedAttention& op, const Launch& l) {
  const bool half = op.kv.planes[0].format == FormatId::f16;
  switch (op.head_dim) {
    case 64: half ? launch<__half, 64>(op, l, tiles(l)) : launch<__nv_bfloat16, 64>(op, l, tiles(l)); break;
    case 128: half ? launch<__half, 128>(op, l, tiles(l)) : launch<__nv_bfloat16, 128>(op, l, tiles(l)); break;
    default: half ? launch<__half, 256>(op, l, tiles(l)) : launch<__nv_bfloat16, 256>(op, l, tiles(l)); break;
  }
}

}  // namespace ridge::cuda
