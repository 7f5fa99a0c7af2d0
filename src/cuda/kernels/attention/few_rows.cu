// Attention of sequences with few rows in a step (decoding, drafts, short tails). A warp of its own block takes one row, one KV head with the query heads that share
// it (packed on the 16-row side of the MMA, so K and V are read once for all), and one tile of 128 positions, which comes through a ring of pieces of 32 positions
// in shared memory: K, K, K, K, V, V, V, V. Tiles leave (m, l, o) in scratch, and a second kernel folds them in order of position.
// Heads of 256 have two warps, since one has no registers for all of a result: each scores 16 of a piece's positions, and after the softmax, which both make of all
// scores, each has half of the dimensions.
#include <algorithm>

#include "cuda/kernels/attention/flash.h"
#include "cuda/kernels/attention/flash_form.h"
#include "cuda/lib/flash_fp8.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

constexpr int kPiece = 32, kPieces = kFlashTile / kPiece, kDepth = 4;
constexpr int64_t kScratchBytes = int64_t{512} << 20;                       // rows whose tiles are in scratch together have no more, unless they are kFewTokens

// The i-th row among those of sequences with few rows, or -1.
__device__ int few_row(const StepView& step, int n_rows, int i, bool all) {
  if (all) return i < n_rows ? i : -1;
  const int n_seqs = step.seq_of[n_rows - 1] + 1, lane = threadIdx.x % 32;
  for (int base = 0, before = 0; base < n_seqs; base += 32) {
    int n = base + lane < n_seqs ? step.seqs[base + lane].n_rows : 0;
    if (n >= kFlashManyRows) n = 0;
    int sum = n;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += other;
    }
    const uint32_t reached = __ballot_sync(0xffffffffu, before + sum > i);
    if (reached) {
      const int at = __ffs(reached) - 1, start = before + __shfl_sync(0xffffffffu, sum - n, at);
      return step.seqs[base + at].first_row + i - start;
    }
    before += __shfl_sync(0xffffffffu, sum, 31);
  }
  return -1;
}

template <int kDim>
constexpr int kWarps = kDim > 128 ? kDim / 128 : 1;

// Shared memory of a block: pieces | of two warps, the scores that they tell each other [16][kScoreStride] | in fp8 the tile's scales of K and of V, for each warp.
constexpr int kScoreStride = kFlashTile + 8;
template <class T, int kDim>
constexpr int kScoresAt = kDepth * kPiece * kRowBytesOf<T, kDim>;
template <class T, int kDim>
constexpr int kScalesAt = kScoresAt<T, kDim> + (kWarps<kDim> > 1 ? 16 * kScoreStride * 4 : 0);
template <class T, int kDim>
constexpr int kSharedBytes = kScalesAt<T, kDim> + (kIsFp8<T> ? kWarps<kDim> * 2 * kFlashTile * 4 : 0);

// Scratch: [row of this launch][tile][head][m, l, o of kDim]. In fp8 as many blocks of a multiprocessor as have room for their pieces.
template <class T, int kDim>
__global__ void __launch_bounds__(kWarps<kDim> * 32, kIsFp8<T> ? (kDim > 128 ? 4 : 12) : 0)
    few_rows_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ StepView step, float* partial, int first, bool all) {
  constexpr int kRowBytes = kRowBytesOf<T, kDim>, kPieceBytes = kPiece * kRowBytes, kChunks = kRowBytes / 16, kOwnDims = kDim / kWarps<kDim>, kOwnPairs = kPiece / 16 / kWarps<kDim>;
  RIDGE_DYNAMIC_SHARED(pieces, 1024);
  follow();
  const int tile = blockIdx.x, kv_head = blockIdx.y, warp = kWarps<kDim> > 1 ? threadIdx.x / 32 : 0, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  [[maybe_unused]] float* const scales = reinterpret_cast<float*>(pieces + kScalesAt<T, kDim>) + warp * 2 * kFlashTile;
  const int row = few_row(step, int(op.q.rows), first + blockIdx.z, all);
  if (row < 0) return;
  const int share = op.n_heads / op.n_kv_heads;
  const Seen seen = seen_by(op, step.positions[row]);
  const int start = tile * kFlashTile;
  if (start + kFlashTile <= seen.from || start >= seen.to) return;
  const int32_t* pages = step.pages + step.seqs[step.seq_of[row]].first_page[op.kv.group];

  const int32_t tile_pages = pages_of_tile(pages, tile, op.kv.page_size, seen, lane);
  const auto place = [](int r, int c) { return kIsFp8<T> ? fp8_place<kDim>(r, c) : r * kRowBytes + ((c ^ (r & 7)) << 4); };
  // A piece never straddles pages of 32 or more; pages of 16 hold half of one.
  const auto fetch = [&](int piece) {
    if (piece < 2 * kPieces) {
      const int plane = piece / kPieces, begin = start + piece % kPieces * kPiece;
      std::byte* to = pieces + piece % kDepth * kPieceBytes;
#pragma unroll
      for (int n = 0; n < kOwnPairs; ++n) {
        const int half = warp + n, head_of = begin + half * 16;
        const int32_t page = __shfl_sync(0xffffffffu, tile_pages, piece % kPieces * 2 + half);
        const std::byte* const from = op.kv.plane(plane, page) + (int64_t{kv_head} * op.kv.page_size + (head_of & (op.kv.page_size - 1))) * kRowBytes + lane * 16;
#pragma unroll
        for (int i = 0; i < kChunks / 2; ++i) {
          const int r = (i * 32 + lane) / kChunks;
          copy_chunk(to + place(half * 16 + r, lane % kChunks), from + i * 512, head_of + r >= seen.from && head_of + r < seen.to);
        }
      }
    }
    commit_chunks();
  };
  if constexpr (kIsFp8<T>) {
    const int32_t page = __shfl_sync(0xffffffffu, tile_pages, lane / 4);
#pragma unroll
    for (int plane = 0; plane < 2; ++plane) copy_four_scales(scales + plane * kFlashTile + 4 * lane, op.kv, plane, page, kv_head, start + 4 * lane, seen);
  }
#pragma unroll
  for (int i = 0; i < kDepth - 1; ++i) fetch(i);
  const auto await_piece = [] {
    await_chunks<kDepth - 2>();
    if constexpr (kWarps<kDim> > 1) __syncthreads();
    else __syncwarp();
  };

  uint32_t queries[kDim / 16][4];
  const auto query = [&](int r) {
    const int head = g + 8 * r;
    return head < share ? reinterpret_cast<const float*>(op.q.data + row * op.q.stride) + (kv_head * share + head) * kDim : nullptr;
  };
  if constexpr (kIsFp8<T>) load_queries_for_fp8(queries, q, query);
  else load_queries<T>(queries, q, query);
  float found[64 / kWarps<kDim>];                                           // the warp's own scores: of 16 kOwnPairs positions a piece
#pragma unroll
  for (int i = 0; i < 64 / kWarps<kDim>; ++i) found[i] = 0;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    await_piece();
    fetch(piece + kDepth - 1);
    const std::byte* keys = pieces + piece % kDepth * kPieceBytes;
    if constexpr (kIsFp8<T>) {
      fp8_scores<kDim, kOwnPairs>(found + 8 * kOwnPairs * piece, queries, keys, 16 * warp, lane);
    } else {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
        for (int n = 0; n < kOwnPairs; ++n) {
          // Matrices: positions 0-7 at both halves of the 16 dimensions, then positions 8-15.
          const int r = (warp + n) * 16 + lane / 16 * 8 + lane % 8, c = 2 * k + lane / 8 % 2;
          uint32_t b[4];
          load_four_matrices<false>(b, keys + place(r, c));
          float* s = found + 8 * (kOwnPairs * piece + n);
          flash_mma<T>(s, queries[k], b[0], b[1]);
          flash_mma<T>(s + 4, queries[k], b[2], b[3]);
        }
    }
    __syncwarp();
  }
  float scores[64];
  if constexpr (kWarps<kDim> > 1) {
    float* const told = reinterpret_cast<float*>(pieces + kScoresAt<T, kDim>) + g * kScoreStride + 2 * q;
#pragma unroll
    for (int i = 0; i < 16; ++i)                                            // of a piece's 16 positions the first 8 or the last, of row g or g + 8
      if (const int piece = i / 4, j = i / 2 % 2, r = i % 2; 8 * r < share)
        *reinterpret_cast<float2*>(told + 8 * r * kScoreStride + kPiece * piece + 16 * warp + 8 * j) = {found[8 * piece + 4 * j + 2 * r], found[8 * piece + 4 * j + 2 * r + 1]};
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int j = i / 2, r = i % 2;
      const float2 v = 8 * r < share ? *reinterpret_cast<const float2*>(told + 8 * r * kScoreStride + 8 * j) : float2{0, 0};
      scores[4 * j + 2 * r] = v.x, scores[4 * j + 2 * r + 1] = v.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 64; ++i) scores[i] = found[i];
  }
  const float factor = exponent_factor(op);
  if constexpr (kIsFp8<T>) scale_scores(scores, scales, q);
  if (op.softcap > 0) cap_scores(scores, op.scale, op.softcap);
  if (start < seen.from || start + kFlashTile > seen.to) mask_scores(scores, start, {seen.from, seen.from}, {seen.to, seen.to}, q);
  uint32_t p[8][4];
  float m[2], l[2];
  [[maybe_unused]] float owed = 1;
  softmax_tile<T>(p, m, l, scores, factor);
  if constexpr (kIsFp8<T>) {
    owed = give_value_scales(scales + kFlashTile, seen.from - start, lane);
    pack_weights(p, scores, scales + kFlashTile, q);
  }

  const int first_dim = warp * kOwnDims;
  float out[kOwnDims / 2];
#pragma unroll
  for (int i = 0; i < kOwnDims / 2; ++i) out[i] = 0;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    await_piece();
    fetch(kPieces + piece + kDepth - 1);
    const std::byte* values = pieces + piece % kDepth * kPieceBytes;
    if constexpr (kIsFp8<T>) {
#pragma unroll
      for (int d = 0; d < kOwnDims / 16; d += 2) fp8_values<kDim, 2>(out + 8 * d, p[piece * 2], p[piece * 2 + 1], values, 0, first_dim / 16 + d, lane);
    } else {
#pragma unroll
      for (int t = 0; t < kPiece / 16; ++t)
#pragma unroll
        for (int d = 0; d < kOwnDims / 16; ++d) {
          // Matrices: positions 0-7 and 8-15 at the first 8 dimensions, then at the next.
          const int r = t * 16 + lane / 8 % 2 * 8 + lane % 8, c = first_dim / 8 + 2 * d + lane / 16;
          uint32_t b[4];
          load_four_matrices<true>(b, values + place(r, c));
          flash_mma<T>(out + 8 * d, p[piece * 2 + t], b[0], b[1]);
          flash_mma<T>(out + 8 * d + 4, p[piece * 2 + t], b[2], b[3]);
        }
    }
    __syncwarp();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (g + 8 * r >= share) continue;
    float* to = partial + ((int64_t{blockIdx.z} * gridDim.x + tile) * op.n_heads + kv_head * share + g + 8 * r) * (kDim + 2);
    if (q == 0 && warp == 0) *reinterpret_cast<float2*>(to) = {m[r], l[r]};
    to += 2 + first_dim;
    if constexpr (kIsFp8<T>) {
#pragma unroll
      for (int d = 0; d < kOwnDims / 16; ++d) {
        const float4 v = fp8_dims(out + 8 * d, r, owed);
        float2* const at = reinterpret_cast<float2*>(to + 16 * d + 4 * q);
        at[0] = {v.x, v.y}, at[1] = {v.z, v.w};
      }
    } else {
#pragma unroll
      for (int j = 0; j < kOwnDims / 8; ++j) *reinterpret_cast<float2*>(to + 8 * j + 2 * q) = {out[4 * j + 2 * r], out[4 * j + 2 * r + 1]};
    }
  }
}

// One warp folds a head of a row. The factors of 32 tiles at a time come from their running maximum, which a scan gives to all lanes at once (one after the other
// they took most of the time of long contexts); then the tiles are added in order, several on their way.
template <int kDim>
__global__ void __launch_bounds__(32) fold_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ StepView step, const float* partial, int n_tiles, int first, bool all) {
  follow();
  const int head = blockIdx.x, lane = threadIdx.x, row = few_row(step, int(op.q.rows), first + blockIdx.y, all);
  if (row < 0) return;
  constexpr int kOwn = kDim / 64, kAhead = 8;                                // kOwn: pairs a lane
  const Seen seen = seen_by(op, step.positions[row]);
  const float factor = exponent_factor(op);
  float m = -CUDART_INF_F, l = 0;
  float2 o[kOwn] = {};
  const float* from = partial + (int64_t{blockIdx.y} * n_tiles * op.n_heads + head) * (kDim + 2);
  const int last = (seen.to - 1) / kFlashTile;
  const auto part = [&](int tile) { return reinterpret_cast<const float2*>(from + int64_t{min(tile, last)} * op.n_heads * (kDim + 2)); };
  for (int base = seen.from / kFlashTile; base <= last; base += 32) {
    const float2 state = base + lane <= last ? part(base + lane)[0] : float2{-CUDART_INF_F, 0};
    float top = fmaxf(state.x, m);                                           // of all tiles up to the lane's
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, top, d);
      if (lane >= d) top = fmaxf(top, other);
    }
    float before = __shfl_up_sync(0xffffffffu, top, 1), unused = 0, my_keep, my_take;
    if (lane == 0) before = m;
    fold(before, unused, state.x, 0, factor, my_keep, my_take);
    for (int i = 0; i < 32 && base + i <= last; i += kAhead) {
      float2 v[kAhead][kOwn];
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) v[a][j] = part(base + i + a)[1 + j * 32 + lane];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (base + i + a > last) break;
        const float keep = __shfl_sync(0xffffffffu, my_keep, i + a), take = __shfl_sync(0xffffffffu, my_take, i + a), l2 = __shfl_sync(0xffffffffu, state.y, i + a);
        l = folded(l, l2, keep, take);
#pragma unroll
        for (int j = 0; j < kOwn; ++j) o[j] = {folded(o[j].x, v[a][j].x, keep, take), folded(o[j].y, v[a][j].y, keep, take)};
      }
    }
    m = __shfl_sync(0xffffffffu, top, 31);
  }
  const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
  const float norm = norm_of(m, l, factor, sinks ? sinks + head : nullptr);
  float* out = reinterpret_cast<float*>(op.out.data + row * op.out.stride) + head * kDim;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) *reinterpret_cast<float2*>(out + i * 64 + 2 * lane) = {__fmul_rn(o[i].x, norm), __fmul_rn(o[i].y, norm)};
}

int64_t scratch_of_a_row(const PagedAttention& op, const Launch& l) { return int64_t{4} * ((l.max_context + kFlashTile - 1) / kFlashTile) * op.n_heads * (op.v_dim + 2); }
int rows_at_once(const PagedAttention& op, const Launch& l) { return int(std::clamp<int64_t>(kScratchBytes / scratch_of_a_row(op, l), kFewTokens, kFlashRowsAtOnce)); }

template <class T, int kDim>
void launch(const PagedAttention& op, const Launch& l, int n_few) {
  constexpr int kBytes = kSharedBytes<T, kDim>;
  const int n_tiles = (l.max_context + kFlashTile - 1) / kFlashTile;
  const bool all = n_few == int(op.q.rows);
  const int at_once = rows_at_once(op, l);
  cudaFuncSetAttribute(few_rows_kernel<T, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  for (int first = 0; first < n_few; first += at_once) {
    const int n = std::min(at_once, n_few - first);
    launch_kernel(few_rows_kernel<T, kDim>, dim3(n_tiles, op.n_kv_heads, n), kWarps<kDim> * 32, kBytes, l.stream, op, l.step, l.attention_scratch, first, all);
    launch_kernel(fold_kernel<kDim>, dim3(op.n_heads, n), 32, 0, l.stream, op, l.step, static_cast<const float*>(l.attention_scratch), n_tiles, first, all);
  }
}

int few_rows(const PagedAttention& op, const Launch& l) { return flash_many_rows_supports(op, l) ? std::min(l.n_few_rows, int(op.q.rows)) : int(op.q.rows); }

}  // namespace

bool flash_supports(const PagedAttention& op) {
  const FormatId f = op.kv.planes[0].format;
  return (f == FormatId::f16 || f == FormatId::bf16 || f == FormatId::fp8_e4m3) && op.kv.planes[1].format == f && op.head_dim == op.v_dim && (op.head_dim == 64 || op.head_dim == 128 || op.head_dim == 256) &&
         op.n_heads <= 16 * op.n_kv_heads && op.chunk == 0 && op.scale > 0 && op.q.stride % 16 == 0 && op.out.stride % 8 == 0 && reinterpret_cast<uintptr_t>(op.q.data) % 16 == 0;
}

int64_t flash_scratch_needed(const PagedAttention& op, const Launch& l) { return std::min(few_rows(op, l), rows_at_once(op, l)) * scratch_of_a_row(op, l); }

void flash_attention(const PagedAttention& op, Tiles tiles, const Launch& l) {
  const int n_few = few_rows(op, l);
  if (n_few < int(op.q.rows)) flash_many_rows(op, tiles, l);
  if (n_few == 0) return;
  with_form(op, [&]<class T, int kDim>(T, std::integral_constant<int, kDim>) { launch<T, kDim>(op, l, n_few); });
}

}  // namespace ridge::cuda
