// Attention for a step of single tokens, where the time from q to the result is what counts: the arithmetic of lib/flash.h, bit for bit. A block takes one
// row, one KV head with the query heads that share it, and tiles of 128 positions, from the newest on: each warp scores some of them, and sums weights times V for some
// of the dimensions. Eight warps are soonest done with one tile; four go through many of them faster. K and V of earlier steps depend on nothing in this one, so those
// of the first tile are on their way before the kernel waits for the projections; K of the next tile comes while this one's weights are made and V is summed, V after
// that. Two blocks a multiprocessor, four in fp8, walk over all tiles of a long context; half as many where heads are of 256.
//
// Norms and rotation of the new q and k are done on the way (Rotation): as a kernel of its own they took 3 us of a layer, most of it waiting. The block of a row's newest
// tile also puts its K and V into their page; rows of the same sequence make the new keys they see for themselves, out of the projections.
//
// Few tiles are folded by the blocks that made them, which are one cluster: each sends its results of a head to the block that folds that head. Where there is a block for each of more tiles,
// they come to the blocks that fold them in a relay (kernels/attention/fold.h): the first ones, one a multiprocessor, beside which the next kernel finds room. Otherwise they leave
// o [row][tile][head][kDim], then m and l [row][tile][head], in scratch, and a second kernel folds them (attention/fold.cu). A long context streams more through the second-level cache than it
// holds, so results are marked to stay there: their way to memory and back took 3 % of the time behind 32k positions in fp8.
//
// In fp8 (lib/flash_fp8.h) the scales of a tile's K and V come with its K: those of V are wanted before V is, when weights are made.
#include <algorithm>

#include "cuda/kernels/attention/decode_items.h"
#include "cuda/kernels/attention/flash.h"
#include "cuda/kernels/attention/flash_form.h"
#include "cuda/kernels/attention/fold.h"
#include "cuda/lib/cluster.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

constexpr int kMostWarps = 8;
constexpr int kMaxBlocks = 4096;                                            // of a tile each: beyond, where there are many rows, a warp a tile does with less shared memory
template <class T, int kDim>
constexpr int kWalksAtOnce = (kIsFp8<T> ? 4 : 2) / (kDim > 128 ? 2 : 1);    // blocks of four warps on a multiprocessor: tiles of half the bytes take twice as many
template <int kDim>
constexpr int kTilesAtOnce = kDim > 128 ? 1 : 2;                            // blocks of eight warps
constexpr int kWeightStride = kFlashTile / 2 + 4, kSumStride = kFlashTile + 8;      // words a row of p: as operands, and in f32 for their sum

template <class T, int kDim>
struct Shared {
  std::byte keys[kFlashTile * kRowBytesOf<T, kDim>], values[kFlashTile * kRowBytesOf<T, kDim>];     // chunk c of row r lies at c ^ (r % 8), in fp8 at fp8_place
  std::byte queries[16 * (2 * kDim + 16)];
  uint32_t weights[16 * kWeightStride];
  float sums[16 * kSumStride];
  float tops[kMostWarps][16];
  float heads[kMostWarps][kDim];
};

// What a cluster folds: [tile's rank][head of this block] o, then m and l.
template <int kDim>
struct Folded {
  static constexpr int kPlaces = 16 + kFoldFewTiles - 1;                    // heads rounded up to the ranks that share them
  float out[kPlaces][kDim];
  float2 state[kPlaces];
};

// fp8, behind it: of the tile's K, and of V twice, since those of the next tile come while these are in use.
struct SharedScales { float keys[kFlashTile], values[2][kFlashTile]; };
template <class T, int kDim>
constexpr int kFoldedAt = int(sizeof(Shared<T, kDim>)) + (kIsFp8<T> ? int(sizeof(SharedScales)) : 0);
template <class T, int kDim, bool kFolds>
constexpr int kSharedBytes = kFoldedAt<T, kDim> + (kFolds ? int(sizeof(Folded<kDim>)) : 0);

static_assert(sizeof(Shared<E4m3, 64>) % 16 == 0 && sizeof(Shared<E4m3, 128>) % 16 == 0 && sizeof(Shared<E4m3, 256>) % 16 == 0, "scales are copied by 16 bytes");

// What a block has: many tiles, one tile at most, or one tile at most as part of a cluster, the blocks of a row and KV head, which writes the result. Where there is no second
// tile, half of the registers do, and the block finds room beside that of the projections. (For many tiles 128 registers a thread do as well, with such room: 8k positions in nvfp4 took 4 % longer.)
enum class Has { many, one, one_of_cluster };
constexpr int kBesideThreads = 896;                                         // of which one has no more than 72 registers: what few_tokens.cu leaves to a block of 256
template <class T, int kDim, bool kRotates, int kWarps, Has kHas>
__global__ void __launch_bounds__(kHas == Has::one && kDim <= 128 ? kBesideThreads : kWarps * 32,
                                  kHas == Has::one ? 1 : kWarps == 4 ? kWalksAtOnce<T, kDim> : kTilesAtOnce<kDim>)
    decode_tile_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ Rotation rotation, const __grid_constant__ StepView step, [[maybe_unused]] float* partial,
                       [[maybe_unused]] int n_tiles, [[maybe_unused]] int n_folding, [[maybe_unused]] const __grid_constant__ Lanes lanes, [[maybe_unused]] Mark mark) {
  constexpr bool kFolds = kHas == Has::one_of_cluster;
  constexpr int kThreads = kWarps * 32, kRowBytes = kRowBytesOf<T, kDim>, kChunks = kRowBytes / 16, kQueryStride = 2 * kDim + 16;
  RIDGE_DYNAMIC_SHARED(memory, 1024);
  Shared<T, kDim>& s = *reinterpret_cast<Shared<T, kDim>*>(memory);
  [[maybe_unused]] SharedScales& scales = *reinterpret_cast<SharedScales*>(memory + sizeof(Shared<T, kDim>));
  start_dependents();
  if constexpr (kFolds) arrive_started();                                   // there to be sent to
  const int kv_head = blockIdx.y, row = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int share = op.n_heads / op.n_kv_heads;
  const Seen seen = seen_by(op, step.positions[row]);
  const int lowest = seen.from / kFlashTile, newest = (seen.to - 1) / kFlashTile;
  int tile = newest - int(blockIdx.x);
  if (kHas == Has::many && tile < lowest) return;
  const StepSeq& seq = step.seqs[step.seq_of[row]];
  const int32_t* const pages = step.pages + seq.first_page[op.kv.group];
  const int first_new = seq.n_context - seq.n_rows, first_row = seq.first_row;      // from here on this step writes K and V
  const int page_bits = 31 - __clz(op.kv.page_size), page_mask = op.kv.page_size - 1;

  // Of the tile that is fetched: looked up one after the other, as they are wanted, the pages of a tile took eight trips to the table a plane.
  int32_t tile_pages = pages_of_tile(pages, max(tile, lowest), op.kv.page_size, seen, lane);
  // The old or the new positions of a tile; what is not seen becomes zeros.
  enum class Which { all, old, fresh };
  const auto fetch = [&](int plane, std::byte* to, int tile, Which which) {
    // A page begins at a multiple of 16 positions: one lookup for the copies of 16. A tile that is old and seen as a whole, as most are, needs no question for each.
    constexpr int kAtOnce = kThreads / kChunks, kStep = kAtOnce > 16 ? kAtOnce : 16;
    const int c = int(threadIdx.x) % kChunks, r0 = int(threadIdx.x) / kChunks;
    const auto for_each = [&](auto&& copy) {
#pragma unroll
      for (int j = 0; j < kFlashTile / kStep; ++j) {
        const int first = j * kStep + r0 / 16 * 16, p0 = tile * kFlashTile + first;
        const std::byte* const from = op.kv.plane(plane, __shfl_sync(0xffffffffu, tile_pages, first / 16)) + int64_t{(kv_head << page_bits) + (p0 & page_mask)} * kRowBytes + c * 16;
#pragma unroll
        for (int i = 0; i < kStep / kAtOnce; ++i) {
          const int r = i * kAtOnce + r0 % 16, at = first + r;
          copy(to + (kIsFp8<T> ? fp8_place<kDim>(at, c) : at * kRowBytes + ((c ^ (at & 7)) << 4)), from + r * kRowBytes, p0 + r);
        }
      }
    };
    if (tile * kFlashTile >= seen.from && (tile + 1) * kFlashTile <= first_new) {
      if (which != Which::fresh) for_each([](std::byte* to, const std::byte* from, int) { copy_chunk(to, from); });
      return;
    }
    for_each([&](std::byte* to, const std::byte* from, int p) {
      const bool valid = p >= seen.from && p < seen.to, fresh = valid && p >= first_new;
      if (which == Which::all || fresh == (which == Which::fresh)) copy_chunk(to, valid ? from : op.kv.base, valid);
    });
  };
  // fp8: the scales of a tile, four positions a lane of the first warp. Four that this step writes to are not copied as one: old ones are loaded, what is not
  // seen becomes 0, and new ones are left to project() or, with `fresh`, loaded too.
  [[maybe_unused]] const auto fetch_scales = [&](int tile, int turn, Which which) {
    if (threadIdx.x >= 32) return;
    const int p = tile * kFlashTile + 4 * lane;
    const bool mixed = which != Which::all && first_new < p + 4;
    const int32_t page = __shfl_sync(0xffffffffu, tile_pages, lane / 4);
#pragma unroll
    for (int plane = 0; plane < 2; ++plane) {
      float* const to = (plane == 0 ? scales.keys : scales.values[turn]) + 4 * lane;
      if (!mixed) {
        if (which != Which::fresh) copy_four_scales(to, op.kv, plane, page, kv_head, p, seen);
        continue;
      }
      for (int i = 0; i < 4; ++i) {
        const int at = p + i;
        const bool valid = at >= seen.from && at < seen.to;
        if ((valid && at >= first_new) != (which == Which::fresh)) continue;
        to[i] = valid ? __ldcg(reinterpret_cast<const float*>(op.kv.scales(plane, page)) + (kv_head << page_bits) + (at & page_mask)) : 0.0f;
      }
    }
  };
  const Which alone = kRotates ? Which::old : Which::all;                   // what comes from pages once the projections are there
  if (tile >= lowest) fetch(0, s.keys, tile, Which::old);
  if constexpr (kIsFp8<T>) {
    if (tile >= lowest) fetch_scales(tile, 0, Which::old);
  }
  commit_chunks();
  if (tile >= lowest) fetch(1, s.values, tile, Which::old);
  commit_chunks();
  if constexpr (kRotates) {
    if (const int d = 8 * int(threadIdx.x); d < kDim) {
      if (rotation.q_norm.weight) prefetch_line(rotation.q_norm.weight + kv_head * share * rotation.q_norm.head_stride + d);
      if (rotation.k_norm.weight) prefetch_line(rotation.k_norm.weight + kv_head * rotation.k_norm.head_stride + d);
    }
    for (int i = share * kQueryStride / 4 + threadIdx.x; i < 16 * kQueryStride / 4; i += kThreads) reinterpret_cast<uint32_t*>(s.queries)[i] = 0;
    leave(mark);
  }

  // Eight warps have an item each at first: all that does not wait is done before the projections are there, and they are asked for first thing after that.
  using Projections = DecodeItems<T, kDim>;
  const Projections projections{op, rotation, pages, seen, row, first_row, first_new, kv_head, share, page_bits, lane};
  constexpr bool kAhead = kRotates && kWarps == kMostWarps;
  [[maybe_unused]] typename Projections::Item ahead[kMostWarps / kWarps];
  [[maybe_unused]] const bool has_item = kAhead && warp < projections.of(max(tile, lowest), true).n();
  if (has_item) projections.prepare(ahead[0], projections.of(max(tile, lowest), true), warp);
  await_predecessors();
  if (has_item) projections.load(ahead[0]);

  // A warp's part in making the tile's new rows and, at first, the queries.
  const auto project = [&](int tile, bool first, [[maybe_unused]] int turn) {
    constexpr int kAtOnce = kMostWarps / kWarps;
    const auto items = projections.of(tile, first);
    const TileRows to{s.queries, s.keys, s.values, scales.keys, scales.values[turn]};
#pragma unroll 1
    for (int nth = warp; nth < items.n(); nth += kMostWarps) {
      typename Projections::Item more[kAtOnce];
      typename Projections::Item(&now)[kAtOnce] = kAhead ? ahead : more;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (nth + i * kWarps < items.n() && !(kAhead && first && nth == warp)) projections.prepare(now[i], items, nth + i * kWarps), projections.load(now[i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (nth + i * kWarps < items.n()) projections.finish(now[i], items, nth + i * kWarps, to, s.heads[warp]);
    }
  };

  uint32_t queries[kDim / 16][4];
  if constexpr (!kRotates) {
    if (tile >= lowest) {
      fetch(0, s.keys, tile, Which::fresh);
      fetch(1, s.values, tile, Which::fresh);
    }
    const auto query = [&](int r) {
      const int head = g + 8 * r;
      return head < share ? reinterpret_cast<const float*>(op.q.data + row * op.q.stride) + (kv_head * share + head) * kDim : nullptr;
    };
    if constexpr (kIsFp8<T>) {
      if (tile >= lowest) fetch_scales(tile, 0, Which::fresh);
      load_queries_for_fp8(queries, q, query);
    } else {
      load_queries<T>(queries, q, query);
    }
    commit_chunks();
    await_chunks<0>();
  }
  const float factor = exponent_factor(op);
  [[maybe_unused]] Folded<kDim>& folded_here = *reinterpret_cast<Folded<kDim>*>(memory + kFoldedAt<T, kDim>);
  [[maybe_unused]] const int n_ranks = int(gridDim.x), heads_of_rank = (share + n_ranks - 1) / n_ranks, my_place = int(blockIdx.x) * heads_of_rank;
  [[maybe_unused]] int turn = 0;
  for (bool first = true; tile >= lowest; tile -= gridDim.x, first = false) {
    const int start = tile * kFlashTile;
    if (kHas == Has::many && tile - int(gridDim.x) >= lowest) tile_pages = pages_of_tile(pages, tile - int(gridDim.x), op.kv.page_size, seen, lane);
    if constexpr (kRotates) {
      if (first || start + kFlashTile > first_new) project(tile, first, turn);
    }
    await_chunks<1>();
    __syncthreads();
    if constexpr (kRotates) {
      if (first) {
#pragma unroll
        for (int k = 0; k < kDim / 16; ++k) load_four_matrices<false>(queries[k], s.queries + lane % 16 * kQueryStride + k * 32 + lane / 16 * 16);
      }
    }

    // Position kOwnPositions warp + 8 j + 2 q + e of the tile is scores[4 j + 2 r + e].
    constexpr int kOwnPositions = kFlashTile / kWarps, kRuns = kOwnPositions / 8;
    float scores[4 * kRuns];
#pragma unroll
    for (int i = 0; i < 4 * kRuns; ++i) scores[i] = 0;
    if constexpr (kIsFp8<T>) {
      fp8_scores<kDim, kRuns / 2>(scores, queries, s.keys, warp * kOwnPositions, lane);
#pragma unroll
      for (int j = 0; j < kRuns; ++j) {
        const float2 k = *reinterpret_cast<const float2*>(scales.keys + kOwnPositions * warp + 8 * j + 2 * q);
#pragma unroll
        for (int r = 0; r < 2; ++r) scores[4 * j + 2 * r] = __fmul_rn(scores[4 * j + 2 * r], k.x), scores[4 * j + 2 * r + 1] = __fmul_rn(scores[4 * j + 2 * r + 1], k.y);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
        for (int j = 0; j < kRuns; j += 2) {
          // Matrices: positions 0-7 at both halves of the 16 dimensions, then positions 8-15.
          const int r = warp * kOwnPositions + j * 8 + lane / 16 * 8 + lane % 8, c = 2 * k + lane / 8 % 2;
          uint32_t b[4];
          load_four_matrices<false>(b, s.keys + r * kRowBytes + ((c ^ (r & 7)) << 4));
          flash_mma<T>(scores + 4 * j, queries[k], b[0], b[1]);
          flash_mma<T>(scores + 4 * j + 4, queries[k], b[2], b[3]);
        }
    }
    if (op.softcap > 0) {
#pragma unroll
      for (int i = 0; i < 4 * kRuns; ++i) scores[i] = op.softcap * tanhf(scores[i] * op.scale / op.softcap);
    }
#pragma unroll
    for (int j = 0; j < kRuns; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int p = start + kOwnPositions * warp + 8 * j + 2 * q + e;
        if (p < seen.from || p >= seen.to) scores[4 * j + e] = scores[4 * j + 2 + e] = -CUDART_INF_F;
      }
    float top[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = scores[2 * r];
#pragma unroll
      for (int j = 0; j < kRuns; ++j) top[r] = fmaxf(top[r], fmaxf(scores[4 * j + 2 * r], scores[4 * j + 2 * r + 1]));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      if (q == 0) s.tops[warp][g + 8 * r] = top[r];
    }
    __syncthreads();
    const bool more = kHas == Has::many && tile - int(gridDim.x) >= lowest;
    if (more) fetch(0, s.keys, tile - int(gridDim.x), alone);
    if constexpr (kIsFp8<T>) {
      if (more) fetch_scales(tile - int(gridDim.x), turn ^ 1, alone);
    }
    commit_chunks();
    [[maybe_unused]] ValueScaling scaling{1, 1};
    if constexpr (kIsFp8<T>) scaling = value_scaling(four_scales(scales.values[turn], seen.from - start, lane));
    // Rows of operands beyond the heads there are say nothing to the others: they are left as they lie.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = g + 8 * r;
      if (8 * r >= share) continue;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) top[r] = fmaxf(top[r], s.tops[w][head]);
      const float base = top[r] == -CUDART_INF_F ? 0.0f : __fmul_rn(top[r], factor);
#pragma unroll
      for (int j = 0; j < kRuns; ++j) {
        const float a = exp2_fast(fmaf(scores[4 * j + 2 * r], factor, -base)), b = exp2_fast(fmaf(scores[4 * j + 2 * r + 1], factor, -base));
        uint32_t& weights = s.weights[head * kWeightStride + (kOwnPositions / 2) * warp + 4 * j + q];
        if constexpr (kIsFp8<T>) {
          const int at = kOwnPositions * warp + 8 * j + 2 * q;
          float2 v = *reinterpret_cast<const float2*>(scales.values[turn] + at);
          if (start + at < seen.from) v.x = 0;
          if (start + at + 1 < seen.from) v.y = 0;
          weights = pack<__half>(__fmul_rn(a, __fmul_rn(v.x, scaling.given)), __fmul_rn(b, __fmul_rn(v.y, scaling.given)));
        } else {
          weights = pack<T>(a, b);
        }
        *reinterpret_cast<float2*>(s.sums + head * kSumStride + kOwnPositions * warp + 8 * j + 2 * q) = {a, b};
      }
    }
    await_chunks<1>();
    __syncthreads();

    // To the block that folds the head, or to scratch.
    [[maybe_unused]] const int64_t at = (int64_t{row} * n_tiles + tile) * op.n_heads + kv_head * share;
    [[maybe_unused]] const uint64_t kept = read_again();
    const auto put_out = [&](int head, int d, const auto& v) {
      if constexpr (kFolds) store_in(address_in(shared_address(&folded_here.out[my_place + head / n_ranks][d]), head % n_ranks), v);
      else if constexpr (kHas == Has::one) store_relayed(partial + (at + head) * kDim + d, v);
      else store_kept(partial + (at + head) * kDim + d, v, kept);
    };
    const auto put_state = [&](int head, const float2& v) {
      if constexpr (kFolds) store_in(address_in(shared_address(&folded_here.state[my_place + head / n_ranks]), head % n_ranks), v);
      else reinterpret_cast<float2*>(partial + op.q.rows * int64_t{n_tiles} * op.n_heads * kDim)[at + head] = v;
    };
    if constexpr (kFolds) await_cluster();
    constexpr int kMine = kDim / 16 > kWarps ? kDim / 16 / kWarps : 1;       // groups of 16 dimensions, a warp's
    if (warp * kMine < kDim / 16) {
      float out[kMine * 8];
#pragma unroll
      for (int i = 0; i < kMine * 8; ++i) out[i] = 0;
      if constexpr (kIsFp8<T>) {
#pragma unroll
        for (int t = 0; t < kFlashTile / 16; t += 2) {
          uint32_t p[2][4];
#pragma unroll
          for (int i = 0; i < 8; ++i) p[i / 4][i % 4] = s.weights[(g + 8 * (i % 2)) * kWeightStride + 8 * (t + i / 4) + 4 * (i % 4 / 2) + q];
          fp8_values<kDim, kMine>(out, p[0], p[1], s.values, t * 16, warp * kMine, lane);
        }
      } else {
#pragma unroll
        for (int t = 0; t < kFlashTile / 16; ++t) {
          uint32_t p[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) p[i] = s.weights[(g + 8 * (i % 2)) * kWeightStride + 8 * t + 4 * (i / 2) + q];
#pragma unroll
          for (int d = 0; d < kMine; ++d) {
            // Matrices: positions 0-7 and 8-15 at the first 8 dimensions, then at the next.
            const int r = t * 16 + lane / 8 % 2 * 8 + lane % 8, c = 2 * (warp * kMine + d) + lane / 16;
            uint32_t b[4];
            load_four_matrices<true>(b, s.values + r * kRowBytes + ((c ^ (r & 7)) << 4));
            flash_mma<T>(out + 8 * d, p, b[0], b[1]);
            flash_mma<T>(out + 8 * d + 4, p, b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (const int head = g + 8 * r; head < share) {
          if constexpr (kIsFp8<T>) {
#pragma unroll
            for (int d = 0; d < kMine; ++d) put_out(head, (warp * kMine + d) * 16 + 4 * q, fp8_dims(out + 8 * d, r, scaling.owed));
          } else {
#pragma unroll
            for (int j = 0; j < 2 * kMine; ++j) put_out(head, warp * kMine * 16 + 8 * j + 2 * q, float2{out[4 * j + 2 * r], out[4 * j + 2 * r + 1]});
          }
        }
    }
    // Sums of weights, by the last two warps: in the order of softmax_tile, a lane's even and odd positions, then lanes.
    if (const int r = kWarps - 1 - warp, head = g + 8 * r; r < 2 && 8 * r < share) {
      float even = 0, odd = 0;
#pragma unroll 4
      for (int j = 0; j < 16; ++j) {
        const float2 v = *reinterpret_cast<const float2*>(s.sums + head * kSumStride + 8 * j + 2 * q);
        even = __fadd_rn(even, v.x);
        odd = __fadd_rn(odd, v.y);
      }
      float sum = __fadd_rn(even, odd);
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
      const float2 state{r == 0 ? top[0] : top[1], sum};
      if (kHas == Has::one && n_folding > 0) {
        if (head < share)
          for (int i = q; i < kDim / 32; i += 4) store_relayed(partial + op.q.rows * int64_t{n_tiles} * op.n_heads * kDim + 2 * ((at + head) * (kDim / 32) + i), state);
      } else if (q == 0 && head < share) {
        put_state(head, state);
      }
    }
    if (!more) break;
    __syncthreads();
    fetch(1, s.values, tile - int(gridDim.x), alone);
    commit_chunks();
    if constexpr (kIsFp8<T>) turn ^= 1;
  }
  if constexpr (kHas == Has::one) {
    const int me = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (me < n_folding) fold_relayed(*reinterpret_cast<FoldRoom*>(s.keys), op, step, partial, n_tiles, me, n_folding);
  }
  if constexpr (kFolds) {
    // Tile newest - i came from rank i; they are folded in order of position.
    if (tile < lowest) await_cluster();
    arrive_in_cluster();
    await_cluster();
    const float* const sinks = reinterpret_cast<const float*>(op.sinks.data);
    const int n = newest - lowest;
    for (int e = threadIdx.x; e < heads_of_rank * kDim; e += kThreads) {
      const int nth = e / kDim, head = nth * n_ranks + int(blockIdx.x), d = e % kDim;
      if (head >= share) break;
      float m = -CUDART_INF_F, l = 0, o = 0;
#pragma unroll 4
      for (int i = n; i >= 0; --i) {
        const int place = i * heads_of_rank + nth;
        float keep, take;
        fold(m, l, folded_here.state[place].x, folded_here.state[place].y, factor, keep, take);
        o = folded(o, folded_here.out[place][d], keep, take);
      }
      const int at = (kv_head * share + head) * kDim + d;
      const float v = __fmul_rn(o, norm_of(m, l, factor, sinks ? sinks + kv_head * share + head : nullptr));
      if (lanes.data) lanes.put(row, at, v);
      else reinterpret_cast<float*>(op.out.data + row * op.out.stride)[at] = v;
    }
  }
}

int tiles(const Launch& l) { return (l.max_context + kFlashTile - 1) / kFlashTile; }

template <class T, int kDim, bool kRotates>
void launch(const PagedAttention& op, const Rotation& rotation, const Lanes& lanes, const Launch& l) {
  const int n_tiles = tiles(l), n_walks = int(op.q.rows) * op.n_kv_heads;
  const auto at_once = [&](int blocks) { return std::min(n_tiles, std::max(2, blocks * l.n_sms / n_walks)); };
  const int n_warps = at_once(kTilesAtOnce<kDim>) == n_tiles ? 8 : 4, n_blocks = at_once(n_warps == 8 ? kTilesAtOnce<kDim> : kWalksAtOnce<T, kDim>);
  const bool folds = l.compute_capability >= 90 && n_warps == 8 && n_blocks == n_tiles && n_tiles <= kFoldFewTiles && n_blocks * n_walks <= l.n_sms;
  bool relays = false;                                                       // where all blocks find room at once: they wait for each other
  const auto launch_as = [&](auto kernel, int bytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int fit = 0;
    relays = l.tile_relays && !lanes.data && n_warps == 8 && !folds && op.q.rows <= 2 && int64_t{n_tiles} * op.q.rows * op.n_heads * (kDim + kDim / 16) * 4 <= kTileRelayBytes &&
             cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, n_warps * 32, bytes) == cudaSuccess && n_blocks * n_walks <= fit * l.n_sms;
    launch_kernel_as({.cluster = folds ? n_blocks : 1}, kernel, dim3(n_blocks, op.n_kv_heads, op.q.rows), n_warps * 32, bytes, l.stream, op, rotation, l.step, relays ? l.tile_relays : l.attention_scratch, n_tiles,
                     relays ? std::min(l.n_sms, n_blocks * n_walks) : 0, lanes, l.mark);
  };
  if (folds) return launch_as(decode_tile_kernel<T, kDim, kRotates, 8, Has::one_of_cluster>, kSharedBytes<T, kDim, true>);
  launch_as(n_warps == 8 ? decode_tile_kernel<T, kDim, kRotates, 8, Has::one> : decode_tile_kernel<T, kDim, kRotates, 4, Has::many>, kSharedBytes<T, kDim, false>);
  if (!relays) fold_tiles(op, n_tiles, lanes, l);
}

template <bool kRotates>
void launch(const PagedAttention& op, const Rotation& rotation, const Lanes& lanes, const Launch& l) {
  with_form(op, [&]<class T, int kDim>(T, std::integral_constant<int, kDim>) { launch<T, kDim, kRotates>(op, rotation, lanes, l); });
}

}  // namespace

// Tiles of heads of 256 are more than some devices have room for.
bool decode_attention_takes(const PagedAttention& op, const Launch& l) {
  const auto fits = [&]<class T, int kDim>(T, std::integral_constant<int, kDim>) { return kDim <= 128 || kSharedBytes<T, kDim, true> <= l.max_shared_bytes; };
  return flash_supports(op) && op.q.rows > 0 && op.q.rows <= std::min(l.n_few_rows, kFlashRowsAtOnce) && with_form(op, fits) &&
         (op.q.rows <= kFewTokens || op.q.rows * op.n_kv_heads * tiles(l) <= kMaxBlocks);
}

void decode_attention(const PagedAttention& op, const Lanes& lanes, const Launch& l) { launch<false>(op, {}, lanes, l); }

void decode_attention(const PagedAttention& op, const RopeStore& rope, const HeadNorm* q_norm, const HeadNorm* k_norm, const Lanes& lanes, const Launch& l) {
  launch<true>(op, rotation_of(rope, q_norm, k_norm), lanes, l);
}

}  // namespace ridge::cuda
