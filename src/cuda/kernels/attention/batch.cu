// Attention for a step of many sequences with few rows each: the arithmetic of lib/flash.h, bit for bit. A block takes one row and one KV head with the query heads that
// share it, and walks over all its tiles, so that K and V stream without a pause and nothing goes through scratch. Its four warps take tiles in turn, each through a ring
// of its own: pieces of 16 positions, eight of K and eight of V a tile. After each round of four tiles the block folds them in order of position.
//
// Where every sequence has one row, norms and rotation of the new q and k and the store of k and v are done on the way (Rotation), which saves a kernel of 4 us: the new K
// and V lie in shared memory as `fresh`, and the warp that has their tile puts them into its ring when their piece is there. K and V of earlier steps depend on nothing in
// this one, so what the ring holds is asked for before the kernel waits for the projections, and more of the first tile is on its way as far as the second-level cache.
//
// Most contexts here are a tile or two for a warp, so what it runs, it runs once, and a multiprocessor fetches the code for it: with pieces unrolled, and scores in registers, warps waited
// for instructions more than for anything else (5.7 of 11 cycles an instruction, 31 us for 32 sequences at 448). Hence loops, scores in shared memory, and no division.
// In fp8 a piece of K comes with the scales of its positions' K and V.
#include "cuda/kernels/attention/flash.h"
#include "cuda/kernels/attention/flash_form.h"
#include "cuda/lib/flash_fp8.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/rotate.h"

namespace ridge::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32, kPiece = 16, kPieces = kFlashTile / kPiece;
constexpr int kMaxContext = 2048, kMaxEvenContext = 16384;

constexpr int kScoreStride = kFlashTile + 8, kWeightStride = kFlashTile / 2 + 4;      // words a head

// Pieces of a warp's first tile that are asked for before its input is there, as far as the second-level cache: K, and in fp8, where they all fit into it together, V.
template <class T>
constexpr int kAhead = kIsFp8<T> ? 2 * kPieces : kPieces;

// Shared memory: [warp] a ring of pieces, chunk c of row r at c ^ (r % 8), in fp8 at fp8_place, and then the tile's scales of K and of V | the row's new K and V, and
// in fp8 their scales | then by the heads of the group: results of a round, twice: [warp][head] o of kDim, m, l | o of the rounds before [head], and before the first its query as
// an operand | their m and l, twice [head] | [warp][head] scores of a tile | [warp][head] its weights as operands.
template <class T, int kDim>
struct Layout {
  static constexpr int kDepth = kIsFp8<T> && kDim <= 128 ? 8 : 4, kRowBytes = kRowBytesOf<T, kDim>, kPieceBytes = kPiece * kRowBytes;
  static constexpr int kRingBytes = kDepth * kPieceBytes + (kIsFp8<T> ? 2 * kFlashTile * 4 : 0);
  static constexpr int kFreshAt = kWarps * kRingBytes, kHeadsAt = kFreshAt + 2 * kRowBytes + 16, kQueryStride = 2 * kDim + 16;
  static constexpr int kResultStride = kDim + 8, kResults = 2 * kWarps * kResultStride, kStates = 4;      // words
  static_assert(kQueryStride <= kDim * 4);
  static constexpr int bytes(int share) { return kHeadsAt + share * (kResults + kDim + kStates + kWarps * (kScoreStride + kWeightStride)) * 4; }
};

// What a row brings along for a KV head: the heads of q that share it, then its k, then its v. A warp makes every kWarps-th of them, and has the numbers of its next one
// on their way.
template <class T, int kDim>
struct NewHeads {
  using L = Layout<T, kDim>;
  static constexpr int kOwn = kDim / 32, kHalf = kOwn / 2;
  struct Head { float value[kOwn], weight[kOwn]; };
  const PagedAttention& op;
  const Rotation& rotation;
  int kv_head, row, share, warp, lane;
  Head now{}, next{};

  __device__ int head_of(int item) const { return item < share ? kv_head * share + item : kv_head; }
  __device__ const NormOfHeads& norm_at(int item) const { return item < share ? rotation.q_norm : rotation.k_norm; }
  __device__ void load_weights(Head& head, int item) const {
    const NormOfHeads& norm = norm_at(item);
    if (!norm.weight || item > share) return;
    const float* const from = norm.weight + head_of(item) * norm.head_stride + lane;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) head.weight[i] = from[32 * i];
  }
  __device__ void load_values(Head& head, int item) const {
    if (item > share + 1) return;
    const Tensor& x = item < share ? op.q : item == share ? rotation.k : rotation.v;
    const float* const from = reinterpret_cast<const float*>(x.data + row * x.stride) + head_of(item) * kDim + lane;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) head.value[i] = __ldcg(from + 32 * i);
  }

  // Before the projections are there.
  __device__ void begin() {
    load_weights(now, warp);
    load_weights(next, warp + kWarps);
  }

  // After it: q as operands to `queries`; K and V to `fresh` and to entry `in_page` of their page.
  __device__ void finish(std::byte* queries, std::byte* fresh, int32_t page, int in_page) {
    load_values(now, warp);
    load_values(next, warp + kWarps);
    const float* const angles = reinterpret_cast<const float*>(rotation.angles.data + row * rotation.angles.stride) + lane;
    float cosine[kHalf], sine[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) cosine[i] = __ldcg(angles + 32 * i), sine[i] = __ldcg(angles + kDim / 2 + 32 * i);
#pragma unroll 1
    for (int item = warp; item < share + 2; item += kWarps) {
      float(&v)[kOwn] = now.value;
      if (item <= share) {
        if (const NormOfHeads& norm = norm_at(item); norm.weight) norm_head(v, now.weight, kDim, norm);
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {                                    // by halves: an element's partner lies in the same lane
          const float a = v[i], b = v[i + kHalf];
          v[i] = turned(a, b, cosine[i], sine[i], true);
          v[i + kHalf] = turned(b, a, cosine[i], sine[i], false);
        }
      }
      if (item < share) put_query(queries + item * L::kQueryStride);
      else store(item - share, fresh, page, kv_head * op.kv.page_size + in_page);
      now = next;
      load_weights(next, item + 2 * kWarps);
      load_values(next, item + 2 * kWarps);
    }
  }

  __device__ void put_query(std::byte* to) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int d = lane + 32 * i;
      if constexpr (kIsFp8<T>) reinterpret_cast<uint16_t*>(to)[fp8_query_place(d)] = uint16_t(pack_query(now.value[i], 0));
      else reinterpret_cast<T*>(to)[d] = rounded<T>(now.value[i]);
    }
  }

  __device__ void store(int plane, std::byte* fresh, int32_t page, int64_t place) const {
    std::byte* const kept = fresh + plane * L::kRowBytes;
    std::byte* const entry = op.kv.plane(plane, page) + place * L::kRowBytes;
    if constexpr (kIsFp8<T>) {
      const KvFp8Scale scale = fp8_scale_of(now.value);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) reinterpret_cast<uint8_t*>(kept)[lane + 32 * i] = reinterpret_cast<uint8_t*>(entry)[lane + 32 * i] = fp8_code(now.value[i], scale);
      if (lane == 0) reinterpret_cast<float*>(fresh + 2 * L::kRowBytes)[plane] = reinterpret_cast<float*>(op.kv.scales(plane, page))[place] = scale.scale;
    } else {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) reinterpret_cast<T*>(kept)[lane + 32 * i] = reinterpret_cast<T*>(entry)[lane + 32 * i] = rounded<T>(now.value[i]);
    }
  }
};

// kRotates: `fresh` is made here, and positions before it are copied; otherwise all that a row sees lies in its pages.
template <class T, int kDim, bool kRotates>
__global__ void __launch_bounds__(kThreads, 2) batch_rows_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ Rotation rotation,
                                                                 const __grid_constant__ Lanes lanes, const __grid_constant__ StepView step, int share, [[maybe_unused]] Mark mark) {
  using L = Layout<T, kDim>;
  constexpr int kDepth = L::kDepth, kRowBytes = L::kRowBytes, kPieceBytes = L::kPieceBytes, kChunks = kRowBytes / 16, kAtOnce = 32 / kChunks;
  RIDGE_DYNAMIC_SHARED(memory, 1024);
  start_dependents();
  const int kv_head = blockIdx.x, row = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const StepSeq& seq = step.seqs[kRotates ? row : step.seq_of[row]];             // one trip to memory less before pages can be looked up, where every sequence has one row
  const int position = kRotates ? seq.n_context - 1 : step.positions[row];
  const Seen seen = seen_by(op, position);
  const int copied_to = kRotates ? position : seen.to;
  const int first_tile = seen.from / kFlashTile, last_tile = position / kFlashTile;
  const int page_bits = 31 - __clz(op.kv.page_size), page_mask = op.kv.page_size - 1;
  const int32_t* const pages = step.pages + seq.first_page[op.kv.group];
  std::byte* const ring = memory + warp * L::kRingBytes;
  [[maybe_unused]] float* const scales = reinterpret_cast<float*>(ring + kDepth * kPieceBytes);
  std::byte* const fresh = memory + L::kFreshAt;
  float* const results = reinterpret_cast<float*>(memory + L::kHeadsAt);
  float* const totals = results + share * L::kResults;
  float2* const states = reinterpret_cast<float2*>(totals + share * kDim);
  float* const all_scores = totals + share * (kDim + L::kStates);
  float* const scores = all_scores + warp * share * kScoreStride;
  uint32_t* const weights = reinterpret_cast<uint32_t*>(all_scores + kWarps * share * kScoreStride) + warp * share * kWeightStride;
  const auto place = [](int r, int c) { return kIsFp8<T> ? fp8_place<kDim>(r, c) : r * kRowBytes + ((c ^ (r & 7)) << 4); };

  // What is asked for runs ahead of what is multiplied. Lane i looks up the page of a tile's i-th piece, one tile ahead.
  const auto page_of = [&](int tile) {
    const int p = tile * kFlashTile + lane * kPiece;
    return lane < kPieces && p < seen.to && p + kPiece > seen.from ? pages[p >> page_bits] : 0;
  };
  int asked_tile = first_tile + warp;
  int page = page_of(asked_tile), next_page = page_of(asked_tile + kWarps);
  const auto piece_at = [&](int plane, int32_t of_piece, int begin) { return op.kv.plane(plane, of_piece) + int64_t{(kv_head << page_bits) + (begin & page_mask)} * kRowBytes; };
  const auto ask = [&](int piece) {                                          // of the tile that is asked for: 0 .. 7 of K, 8 .. 15 of V
    if (asked_tile <= last_tile) {
      const int begin = asked_tile * kFlashTile + piece % kPieces * kPiece;
      const int32_t of_piece = __shfl_sync(0xffffffffu, page, piece % kPieces);
      const std::byte* const from = piece_at(piece / kPieces, of_piece, begin) + lane * 16;
      std::byte* const to = ring + piece % kDepth * kPieceBytes;
      const uint32_t n_before = max(seen.from - begin, 0), n_seen = max(copied_to - max(seen.from, begin), 0);      // rows of the piece, or more
#pragma unroll
      for (int i = 0; i < kPieceBytes / 512; ++i) {                          // 512 bytes at once, kAtOnce rows: row i kAtOnce + r lies as row r does, but for what i turns around
        const int turned_around = place(i * kAtOnce, 0) - i * 512;
        copy_chunk(to + i * 512 + (place(lane / kChunks, lane % kChunks) ^ turned_around), from + i * 512, i * kAtOnce + lane / kChunks - n_before < n_seen);
      }
      if constexpr (kIsFp8<T>) {
        if (piece < kPieces && lane < 8) {                                   // four positions a lane
          const int plane = lane / 4, p = begin + lane % 4 * 4;
          const int n = p + 4 > seen.from ? min(max(copied_to - p, 0), 4) : 0;
          const std::byte* const four = op.kv.scales(plane, of_piece) + int64_t{(kv_head << page_bits) + (p & page_mask)} * 4;
          copy_part_of_chunk(scales + plane * kFlashTile + piece * kPiece + lane % 4 * 4, four, n * 4);
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
  const auto prefetch_more = [&] {                                           // piece i of the first tile by lane i
    const int begin = asked_tile * kFlashTile + lane % kPieces * kPiece;
    const int32_t of_piece = __shfl_sync(0xffffffffu, page, lane % kPieces);
    if (lane >= kDepth - 1 && lane < kAhead<T> && begin < copied_to && begin + kPiece > seen.from) prefetch_bulk(piece_at(lane / kPieces, of_piece, begin), kPieceBytes);
  };
  uint32_t queries[kDim / 16][4];
  if constexpr (kRotates) {
    std::byte* const operands = reinterpret_cast<std::byte*>(totals);
    NewHeads<T, kDim> heads{op, rotation, kv_head, row, share, warp, lane};
    heads.begin();
    const int32_t own_page = pages[position >> page_bits];
    ask_first();
    prefetch_more();
    leave(mark);
    await_predecessors();
    heads.finish(operands, fresh, own_page, position & page_mask);
    __syncthreads();
    // Rows beyond the heads there are say nothing to the others: any will do.
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) load_four_matrices<false>(queries[k], operands + min(lane % 16, share - 1) * L::kQueryStride + k * 32 + lane / 16 * 16);
  } else {
    // K of earlier steps depends on nothing in this one.
    const bool early = asked_tile * kFlashTile + (kDepth - 1) * kPiece <= seq.n_context - seq.n_rows;
    if (early) ask_first();
    prefetch_more();
    await_predecessors();
    if (!early) ask_first();
    const auto query = [&](int r) {
      const int head = g + 8 * r;
      return head < share ? reinterpret_cast<const float*>(op.q.data + row * op.q.stride) + (kv_head * share + head) * kDim : nullptr;
    };
    if constexpr (kIsFp8<T>) load_queries_for_fp8(queries, q, query);
    else load_queries<T>(queries, q, query);
  }
  // The row's own K (plane 0) or V into the piece of it that has arrived.
  [[maybe_unused]] const auto put_fresh = [&](int plane, std::byte* piece) {
    if (lane < kChunks) *reinterpret_cast<uint4*>(piece + place(position % kPiece, lane)) = reinterpret_cast<const uint4*>(fresh + plane * kRowBytes)[lane];
    if constexpr (kIsFp8<T>) {
      if (plane == 0 && lane < 2) scales[lane * kFlashTile + position % kFlashTile] = reinterpret_cast<const float*>(fresh + 2 * kRowBytes)[lane];
    }
    __syncwarp();
  };
  const float factor = exponent_factor(op);
  const float* const sinks = reinterpret_cast<const float*>(op.sinks.data);

  for (int base = first_tile, parity = 0; base <= last_tile; base += kWarps, parity ^= 1) {
    const int start = (base + warp) * kFlashTile;
    if (base + warp <= last_tile) {
      float* const result = results + (parity * kWarps + warp) * share * L::kResultStride;
      [[maybe_unused]] const int fresh_piece = kRotates && base + warp == last_tile ? position % kFlashTile / kPiece : kPieces;
#pragma unroll 1
      for (int piece = 0; piece < kPieces; ++piece) {
        await_chunks<kDepth - 2>();
        __syncwarp();
        ask(piece + kDepth - 1);
        std::byte* const keys = ring + piece % kDepth * kPieceBytes;
        if constexpr (kRotates) {
          if (piece == fresh_piece) put_fresh(0, keys);
        }
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
            uint32_t b[4];
            load_four_matrices<false>(b, keys + place(lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
            flash_mma<T>(found, queries[k], b[0], b[1]);
            flash_mma<T>(found + 4, queries[k], b[2], b[3]);
          }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r)
          if (g + 8 * r < share)
#pragma unroll
            for (int j = 0; j < 2; ++j) *reinterpret_cast<float2*>(scores + (g + 8 * r) * kScoreStride + piece * kPiece + 8 * j + 2 * q) = {found[4 * j + 2 * r], found[4 * j + 2 * r + 1]};
      }
      __syncwarp();
      [[maybe_unused]] float owed = 1;
      if constexpr (kIsFp8<T>) owed = give_value_scales(scales + kFlashTile, seen.from - start, lane);
      // Eight lanes a head: lane % 8 has positions 8 i + lane % 8, which is a chain of softmax_tile (a lane's even or its odd positions there). Sums are in its order: a
      // chain, then even and odd ones, then lanes.
#pragma unroll 1
      for (int first = 0; first < share; first += 4) {
        const int head = first + lane / 8;
        const bool there = head < share;                                       // other lanes touch no scores
        const int from = seen.from - start - lane % 8, to = seen.to - start - lane % 8;
        float* const s = scores + head * kScoreStride + lane % 8;
        if (op.softcap > 0 && there) {
#pragma unroll 1
          for (int p = 0; p < kFlashTile; p += 8) s[p] = op.softcap * tanhf(s[p] * op.scale / op.softcap);
        }
        float top = -CUDART_INF_F;
#pragma unroll 4
        for (int p = 0; p < kFlashTile; p += 8) {
          if (there && (p < from || p >= to)) s[p] = -CUDART_INF_F;
          if (there) top = fmaxf(top, s[p]);
        }
#pragma unroll
        for (int d = 1; d < 8; d *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
        const float base_exponent = top == -CUDART_INF_F ? 0.0f : __fmul_rn(top, factor);
        auto* const w = reinterpret_cast<OperandOf<T>*>(weights + head * kWeightStride) + lane % 8;
        float sum = 0;
#pragma unroll 4
        for (int p = 0; p < kFlashTile; p += 8) {
          const float weight = there ? exp2_fast(fmaf(s[p], factor, -base_exponent)) : 0.0f;
          sum = __fadd_rn(sum, weight);
          float given = weight;
          if constexpr (kIsFp8<T>) given = __fmul_rn(weight, scales[kFlashTile + p + lane % 8]);
          if (there) w[p] = rounded<OperandOf<T>>(given);
        }
#pragma unroll
        for (int d = 1; d < 8; d *= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, d));
        if (lane % 8 == 0 && there) *reinterpret_cast<float2*>(result + head * L::kResultStride + kDim) = {top, sum};
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
        std::byte* const values = ring + piece % kDepth * kPieceBytes;
        if constexpr (kRotates) {
          if (piece == fresh_piece) put_fresh(1, values);
        }
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
            uint32_t b[4];
            load_four_matrices<true>(b, values + place(lane / 8 % 2 * 8 + lane % 8, 2 * d + lane / 16));
            flash_mma<T>(out + 8 * d, p, b[0], b[1]);
            flash_mma<T>(out + 8 * d + 4, p, b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (g + 8 * r >= share) continue;
        float* const to = result + (g + 8 * r) * L::kResultStride;
        if constexpr (kIsFp8<T>) {
#pragma unroll
          for (int d = 0; d < kDim / 16; ++d) *reinterpret_cast<float4*>(to + 16 * d + 4 * q) = fp8_dims(out + 8 * d, r, owed);
        } else {
#pragma unroll
          for (int j = 0; j < kDim / 8; ++j) *reinterpret_cast<float2*>(to + 8 * j + 2 * q) = {out[4 * j + 2 * r], out[4 * j + 2 * r + 1]};
        }
      }
    }
    __syncthreads();                                                         // one a round: the next writes to the other half

    // A thread folds four dimensions of a head, and the last time they leave.
    const int n_here = min(kWarps, last_tile - base + 1);
#pragma unroll 1
    for (int e = threadIdx.x; e < share * (kDim / 4); e += kThreads) {
      const int head = e / (kDim / 4), d = e % (kDim / 4) * 4;
      float4* const total = reinterpret_cast<float4*>(totals + head * kDim + d);
      float2 state{-CUDART_INF_F, 0};
      float4 o{0, 0, 0, 0};
      if (base > first_tile) state = states[(parity ^ 1) * share + head], o = *total;
      const float* from = results + (parity * kWarps * share + head) * L::kResultStride;
#pragma unroll 1
      for (int w = 0; w < n_here; ++w, from += share * L::kResultStride) {
        const float2 tile = *reinterpret_cast<const float2*>(from + kDim);
        const float4 v = *reinterpret_cast<const float4*>(from + d);
        float keep, take;
        fold(state.x, state.y, tile.x, tile.y, factor, keep, take);
        o = {folded(o.x, v.x, keep, take), folded(o.y, v.y, keep, take), folded(o.z, v.z, keep, take), folded(o.w, v.w, keep, take)};
      }
      if (base + kWarps <= last_tile) {
        *total = o;
        if (d == 0) states[parity * share + head] = state;
        continue;
      }
      const int number = kv_head * share + head, at = number * kDim + d;
      const float norm = norm_of(state.x, state.y, factor, sinks ? sinks + number : nullptr);
      o = {__fmul_rn(o.x, norm), __fmul_rn(o.y, norm), __fmul_rn(o.z, norm), __fmul_rn(o.w, norm)};
      if (lanes.data) {
        lanes.put_four(lanes.at(row, at), {pack<__nv_bfloat16>(o.x, o.y), pack<__nv_bfloat16>(o.z, o.w)});
      } else {
        float2* const to = reinterpret_cast<float2*>(op.out.data + row * op.out.stride + at * 4);
        to[0] = {o.x, o.y}, to[1] = {o.z, o.w};
      }
    }
  }
}

int share_of(const PagedAttention& op) { return op.n_heads / op.n_kv_heads; }

template <bool kRotates>
void launch(const PagedAttention& op, const Rotation& rotation, const Lanes& lanes, const Launch& l) {
  with_form(op, [&]<class T, int kDim>(T, std::integral_constant<int, kDim>) {
    const auto kernel = batch_rows_kernel<T, kDim, kRotates>;
    const int bytes = Layout<T, kDim>::bytes(share_of(op));
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    launch_kernel(kernel, dim3(op.n_kv_heads, op.q.rows), kThreads, bytes, l.stream, op, rotation, lanes, l.step, share_of(op), l.mark);
  });
}

}  // namespace

// Where the blocks are enough for all multiprocessors and no context is so long that the others would wait for its block: 32 sequences behind 8192 stream at 0.95 of the bandwidth, at
// 0.80 in tiles that are folded afterwards.
// A block for a row and head: short contexts take as long for half as many rows as there are multiprocessors, long ones are cut into tiles until there are nearly as many. (Twelve layers of an 8B model, rows of
// 9, 10, 12 and 14: 10,355, 11,406, 13,466 and 15,455 tokens/s behind 432 tokens, in tiles 10,185, 11,240, 12,897 and 14,794; behind 1,900 7,745, 8,566, 10,121 and 11,710, in tiles 8,428, 9,238, 10,239 and 11,667.)
bool batch_attention_takes(const PagedAttention& op, const Launch& l) {
  const int wanted = l.max_context <= 1024 ? 4 : 7;                           // eighths of the multiprocessors
  const auto bytes = [&]<class T, int kDim>(T, std::integral_constant<int, kDim>) { return Layout<T, kDim>::bytes(share_of(op)); };
  return flash_supports(op) && op.q.rows > kFewTokens && op.q.rows <= l.n_few_rows && op.q.rows * op.n_kv_heads * 8 >= l.n_sms * wanted &&
         l.max_context <= (l.even ? kMaxEvenContext : kMaxContext) && with_form(op, bytes) <= l.max_shared_bytes;
}

void batch_attention(const PagedAttention& op, const Lanes& lanes, const Launch& l) { launch<false>(op, {}, lanes, l); }

bool batch_attention_rotates(const PagedAttention& op, const RopeStore& rope, const Launch& l) {
  return batch_attention_takes(op, l) && l.single_rows && rope.angles && rope.style == RopeStyle::half && rope.n_rot == op.head_dim && rope.v_dim == op.v_dim;
}

void batch_attention(const PagedAttention& op, const RopeStore& rope, const HeadNorm* q_norm, const HeadNorm* k_norm, const Lanes& lanes, const Launch& l) {
  launch<true>(op, rotation_of(rope, q_norm, k_norm), lanes, l);
}

}  // namespace ridge::cuda
