// Attention for a step of many sequences with few rows each: the arithmetic of lib/flash.h, bit for bit. A block takes one row and one KV head with the query heads that
// share it, and walks over all its tiles, so that K and V stream without a pause and nothing goes through scratch. Its four warps take tiles in turn, each through a ring
// of its own: pieces of 16 positions, eight of K and eight of V a tile. After each round of four tiles the block folds them in order of position.
// Most contexts here are a tile or two for a warp, so what it runs, it runs once, and a multiprocessor fetches the code for it: with pieces unrolled, and scores in registers, warps waited
// for instructions more than for anything else (5.7 of 11 cycles an instruction, 31 us for 32 sequences at 448). Hence loops, and scores in shared memory.
// In fp8 a piece of K comes with the scales of its positions' K and V.
#include "cuda/kernels/flash.h"
#include "cuda/lib/flash_fp8.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32, kPiece = 16, kPieces = kFlashTile / kPiece;
constexpr int kMaxContext = 2048, kMaxEvenContext = 16384;

constexpr int kScoreStride = kFlashTile + 8, kWeightStride = kFlashTile / 2 + 4;      // words a head

// Shared memory: [warp] a ring of pieces, chunk c of row r at c ^ (r % 8), in fp8 at fp8_place, and then the tile's scales of K and of V |
// results of a round, twice: [warp][head of the group][m, l, o of kDim] | [warp][head] scores of a tile, then [warp][head] its weights as operands.
template <class T>
constexpr int kDepthOf = kIsFp8<T> ? 8 : 4;
template <class T, int kDim>
constexpr int kRowBytesOf = (kIsFp8<T> ? 1 : 2) * kDim;
template <class T, int kDim>
constexpr int kRingBytes = kDepthOf<T> * kPiece * kRowBytesOf<T, kDim> + (kIsFp8<T> ? 2 * kFlashTile * 4 : 0);
template <class T, int kDim>
int shared_bytes(int share) { return kWarps * (kRingBytes<T, kDim> + share * (2 * (kDim + 2) + kScoreStride + kWeightStride) * 4); }

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 2) batch_rows_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ Lanes lanes, const __grid_constant__ StepView step) {
  constexpr int kDepth = kDepthOf<T>, kRowBytes = kRowBytesOf<T, kDim>, kPieceBytes = kPiece * kRowBytes, kChunks = kRowBytes / 16;
  extern __shared__ __align__(1024) std::byte memory[];
  start_dependents();
  const int kv_head = blockIdx.x, row = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int share = op.n_heads / op.n_kv_heads, page_size = op.kv.page_size;
  const int position = step.positions[row], seen_from = op.window > 0 ? max(0, position - op.window + 1) : 0, seen_to = position + 1;
  const int first_tile = seen_from / kFlashTile, last_tile = position / kFlashTile;
  const StepSeq& seq = step.seqs[step.seq_of[row]];
  const int32_t* pages = step.pages + seq.first_page[op.kv.group];
  std::byte* const ring = memory + warp * kRingBytes<T, kDim>;
  [[maybe_unused]] float* const scales = reinterpret_cast<float*>(ring + kDepth * kPieceBytes);
  float* const results = reinterpret_cast<float*>(memory + kWarps * kRingBytes<T, kDim>);
  float* const scores = results + kWarps * share * 2 * (kDim + 2) + warp * share * kScoreStride;
  uint32_t* const weights = reinterpret_cast<uint32_t*>(results + kWarps * share * (2 * (kDim + 2) + kScoreStride)) + warp * share * kWeightStride;

  // What is asked for runs ahead of what is multiplied. Lane i looks up the page of a tile's i-th piece, one tile ahead.
  const auto page_of = [&](int tile) {
    const int p = tile * kFlashTile + lane * kPiece;
    return lane < kPieces && tile <= last_tile && p < seen_to && p + kPiece > seen_from ? pages[p / page_size] : 0;
  };
  int asked_tile = first_tile + warp;
  int page = page_of(asked_tile), next_page = page_of(asked_tile + kWarps);
  const auto ask = [&](int piece) {                                          // of the tile that is asked for: 0 .. 7 of K, 8 .. 15 of V
    if (asked_tile <= last_tile) {
      const int begin = asked_tile * kFlashTile + piece % kPieces * kPiece;
      const int32_t of_piece = __shfl_sync(0xffffffffu, page, piece % kPieces);
      const std::byte* from = op.kv.plane(piece / kPieces, of_piece) + (int64_t{kv_head} * page_size + begin % page_size) * kRowBytes;
      std::byte* to = ring + piece % kDepth * kPieceBytes;
#pragma unroll
      for (int i = 0; i < kPiece * kChunks / 32; ++i) {
        const int r = (i * 32 + lane) / kChunks, c = (i * 32 + lane) % kChunks;
        const bool valid = begin + r >= seen_from && begin + r < seen_to;
        copy_chunk(to + (kIsFp8<T> ? fp8_place<kDim>(r, c) : r * kRowBytes + ((c ^ (r & 7)) << 4)), from + (valid ? r * kRowBytes + c * 16 : 0), valid);
      }
      if constexpr (kIsFp8<T>) {
        if (piece < kPieces && lane < 8) {                                   // four positions a lane
          const int plane = lane / 4, p = begin + lane % 4 * 4;
          const int n = p + 4 > seen_from ? min(max(seen_to - p, 0), 4) : 0;
          copy_part_of_chunk(scales + plane * kFlashTile + piece * kPiece + lane % 4 * 4,
                             op.kv.scales(plane, of_piece) + int64_t{kv_head * page_size + p % page_size} * 4, n * 4);
        }
      }
    }
    commit_chunks();
    if (piece == 2 * kPieces - 1) asked_tile += kWarps, page = next_page, next_page = page_of(asked_tile + kWarps);
  };
  const auto ask_first = [&] {
#pragma unroll 1
    for (int i = 0; i < kDepth - 1; ++i) ask(i);
  };
  // K of earlier steps depends on nothing in this one.
  const bool early = asked_tile * kFlashTile + (kDepth - 1) * kPiece <= seq.n_context - seq.n_rows;
  if (early) ask_first();
  await_predecessors();
  if (!early) ask_first();
  uint32_t queries[kDim / 16][4];
  const auto query = [&](int r) {
    const int head = g + 8 * r;
    return head < share ? reinterpret_cast<const float*>(op.q.data + row * op.q.stride) + (kv_head * share + head) * kDim : nullptr;
  };
  if constexpr (kIsFp8<T>) load_queries_for_fp8(queries, q, query);
  else load_queries<T>(queries, q, query);
  const float factor = exponent_factor(op);

  // A thread folds dimension (thread % kDim) of every (128 / kDim)-th head.
  constexpr int kOwn = 16 * kDim / kThreads;
  float total[kOwn], total_m[kOwn], total_l[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) total[i] = 0, total_m[i] = -CUDART_INF_F, total_l[i] = 0;
  for (int base = first_tile, parity = 0; base <= last_tile; base += kWarps, parity ^= 1) {
    const int start = (base + warp) * kFlashTile;
    if (base + warp <= last_tile) {
#pragma unroll 1
      for (int piece = 0; piece < kPieces; ++piece) {
        await_chunks<kDepth - 2>();
        __syncwarp();
        ask(piece + kDepth - 1);
        const std::byte* keys = ring + piece % kDepth * kPieceBytes;
        float found[8] = {};                                                 // position 16 piece + 8 j + 2 q + e of head g + 8 r is found[4 j + 2 r + e]
        if constexpr (kIsFp8<T>) {
          fp8_scores<kDim, 1>(found, queries, keys, 0, lane);
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float2 k = *reinterpret_cast<const float2*>(scales + piece * kPiece + 8 * j + 2 * q);
#pragma unroll
            for (int r = 0; r < 2; ++r) found[4 * j + 2 * r] = __fmul_rn(found[4 * j + 2 * r], k.x), found[4 * j + 2 * r + 1] = __fmul_rn(found[4 * j + 2 * r + 1], k.y);
          }
        } else {
#pragma unroll
          for (int k = 0; k < kDim / 16; ++k) {
            // Matrices: positions 0-7 at both halves of the 16 dimensions, then positions 8-15.
            const int r = lane / 16 * 8 + lane % 8, c = 2 * k + lane / 8 % 2;
            uint32_t b[4];
            load_four_matrices<false>(b, keys + r * kRowBytes + ((c ^ (r & 7)) << 4));
            flash_mma<T>(found, queries[k], b[0], b[1]);
            flash_mma<T>(found + 4, queries[k], b[2], b[3]);
          }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r)
          if (g + 8 * r < share)
#pragma unroll
            for (int j = 0; j < 2; ++j) *reinterpret_cast<float2*>(scores + (g + 8 * r) * kScoreStride + piece * kPiece + 8 * j + 2 * q) = {found[4 * j + 2 * r], found[4 * j + 2 * r + 1]};
        __syncwarp();
      }
      float m[2] = {-CUDART_INF_F, -CUDART_INF_F}, l[2] = {0, 0};
      [[maybe_unused]] float owed = 1;
      if constexpr (kIsFp8<T>) owed = give_value_scales(scales + kFlashTile, seen_from - start, lane);
#pragma unroll 1
      for (int r = 0; 8 * r < share; ++r) {
        const int head = g + 8 * r;
        if (op.softcap > 0 || start < seen_from || start + kFlashTile > seen_to) {
#pragma unroll 1
          for (int i = 0; head < share && i < kFlashTile / 4; ++i) {
            const int p = 8 * (i / 2) + 2 * q + i % 2;
            float& s = scores[head * kScoreStride + p];
            if (op.softcap > 0) s = op.softcap * tanhf(s * op.scale / op.softcap);
            if (start + p < seen_from || start + p >= seen_to) s = -CUDART_INF_F;
          }
        }
        float s[kFlashTile / 4];
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const float2 v = *reinterpret_cast<const float2*>(scores + min(head, share - 1) * kScoreStride + 8 * j + 2 * q);
          s[2 * j] = v.x, s[2 * j + 1] = v.y;
        }
        // As softmax_tile has it: the order of the sums is a lane's even and odd positions, then lanes.
        float top = s[0];
#pragma unroll
        for (int i = 1; i < kFlashTile / 4; ++i) top = fmaxf(top, s[i]);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float base_exponent = top == -CUDART_INF_F ? 0.0f : __fmul_rn(top, factor);
        float even = 0, odd = 0;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const float a = exp2_fast(fmaf(s[2 * j], factor, -base_exponent)), b = exp2_fast(fmaf(s[2 * j + 1], factor, -base_exponent));
          even = __fadd_rn(even, a);
          odd = __fadd_rn(odd, b);
          uint32_t pair;
          if constexpr (kIsFp8<T>) {
            const float2 v = *reinterpret_cast<const float2*>(scales + kFlashTile + 8 * j + 2 * q);
            pair = pack<__half>(__fmul_rn(a, v.x), __fmul_rn(b, v.y));
          } else {
            pair = pack<T>(a, b);
          }
          if (head < share) weights[head * kWeightStride + 4 * j + q] = pair;
        }
        float sum = __fadd_rn(even, odd);
        sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
        sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
        if (r == 0) m[0] = top, l[0] = sum;
        else m[1] = top, l[1] = sum;
      }
      __syncwarp();
      float out[kDim / 2];
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) out[i] = 0;
#pragma unroll 1
      for (int piece = 0; piece < kPieces; ++piece) {
        await_chunks<kDepth - 2>();
        __syncwarp();
        ask((kPieces + piece + kDepth - 1) % (2 * kPieces));
        const std::byte* values = ring + piece % kDepth * kPieceBytes;
        uint32_t p[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (const int head = g + i % 2 * 8; head < share) p[i] = weights[head * kWeightStride + 8 * piece + 4 * (i / 2) + q];
        if constexpr (kIsFp8<T>) {
#pragma unroll
          for (int d = 0; d < kDim / 16; d += 2) fp8_values<kDim>(out + 8 * d, p, values, 0, d, lane);
        } else {
#pragma unroll
          for (int d = 0; d < kDim / 16; ++d) {
            // Matrices: positions 0-7 and 8-15 at the first 8 dimensions, then at the next.
            const int r = lane / 8 % 2 * 8 + lane % 8, c = 2 * d + lane / 16;
            uint32_t b[4];
            load_four_matrices<true>(b, values + r * kRowBytes + ((c ^ (r & 7)) << 4));
            flash_mma<T>(out + 8 * d, p, b[0], b[1]);
            flash_mma<T>(out + 8 * d + 4, p, b[2], b[3]);
          }
        }
        __syncwarp();
      }
      float* const to = results + (parity * kWarps + warp) * share * (kDim + 2);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (g + 8 * r >= share) continue;
        if (q == 0) *reinterpret_cast<float2*>(to + (g + 8 * r) * (kDim + 2)) = {m[r], l[r]};
        if constexpr (kIsFp8<T>) {
#pragma unroll
          for (int d = 0; d < kDim / 16; ++d) {
            const float4 v = fp8_dims(out + 8 * d, r, owed);
            float2* const at = reinterpret_cast<float2*>(to + (g + 8 * r) * (kDim + 2) + 2 + 16 * d + 4 * q);
            at[0] = {v.x, v.y}, at[1] = {v.z, v.w};
          }
        } else {
#pragma unroll
          for (int j = 0; j < kDim / 8; ++j) *reinterpret_cast<float2*>(to + (g + 8 * r) * (kDim + 2) + 2 + 8 * j + 2 * q) = {out[4 * j + 2 * r], out[4 * j + 2 * r + 1]};
        }
      }
    }
    __syncthreads();                                                         // one a round: the next writes to the other half
    const int n_here = min(kWarps, last_tile - base + 1);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int head = (int(threadIdx.x) + i * kThreads) / kDim;
      if (head >= share) break;
      const float* from = results + (parity * kWarps * share + head) * (kDim + 2);
      for (int w = 0; w < n_here; ++w, from += share * (kDim + 2)) {
        float keep, take;
        fold(total_m[i], total_l[i], from[0], from[1], factor, keep, take);
        total[i] = folded(total[i], from[2 + threadIdx.x % kDim], keep, take);
      }
    }
  }
  const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
  float* const out = reinterpret_cast<float*>(op.out.data + row * op.out.stride) + kv_head * share * kDim;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int head = (int(threadIdx.x) + i * kThreads) / kDim;
    if (head >= share) break;
    const float v = __fmul_rn(total[i], norm_of(total_m[i], total_l[i], factor, sinks ? sinks + kv_head * share + head : nullptr));
    const int at = head * kDim + threadIdx.x % kDim;
    if (lanes.data) *reinterpret_cast<__nv_bfloat16*>(lanes.at(row, kv_head * share * kDim + at)) = __float2bfloat16_rn(v);
    else out[at] = v;
  }
}

template <class T, int kDim>
void launch(const PagedAttention& op, const Lanes& lanes, const Launch& l) {
  const int bytes = shared_bytes<T, kDim>(op.n_heads / op.n_kv_heads);
  cudaFuncSetAttribute(batch_rows_kernel<T, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  launch_kernel(batch_rows_kernel<T, kDim>, dim3(op.n_kv_heads, op.q.rows), kThreads, bytes, l.stream, op, lanes, l.step);
}

}  // namespace

// Where the blocks are enough for all multiprocessors and no context is so long that the others would wait for its block: 32 sequences behind 8192 stream at 0.95 of the bandwidth, at
// 0.80 in tiles that are folded afterwards.
bool batch_attention_takes(const PagedAttention& op, const Launch& l) {
  return flash_supports(op) && op.q.rows > kFewTokens && op.q.rows <= l.n_few_rows && op.q.rows * op.n_kv_heads * 8 >= l.n_sms * 7 && l.max_context <= (l.even ? kMaxEvenContext : kMaxContext);
}

void batch_attention(const PagedAttention& op, const Lanes& lanes, const Launch& l) {
  const auto launch_as = [&]<class T>(T) { op.head_dim == 64 ? launch<T, 64>(op, lanes, l) : launch<T, 128>(op, lanes, l); };
  switch (op.kv.planes[0].format) {
    case FormatId::f16: launch_as(__half{}); break;
    case FormatId::fp8_e4m3: launch_as(E4m3{}); break;
    default: launch_as(__nv_bfloat16{}); break;
  }
}

}  // namespace ridge::cuda
