// Attention of whole prompts on sm_90a. A block takes 128 rows, tokens x the query heads that share a KV head, and walks over the tiles of 128 positions that they
// see. One warpgroup brings K and V rows from their pages into a ring of tiles in shared memory, by the tensor copy engine where a whole tile is seen; two take 64 rows each:
// while one is at its softmax, the other has the tensor cores. Queries stay in shared memory, a tile's result and the fold of those before it in registers.
//
// A warpgroup's own products run beside its softmax, too: it asks for the next tile's scores and for the first 64 dimensions of this tile's result, takes the maximum of the
// scores while those come, folds them, asks for the other 64 dimensions and makes weights meanwhile. Turns by barriers, so that one warpgroup multiplies while the other is at
// its softmax, were 3 % slower in a prefill before that.
//
// Rows of a step are cut into blocks without regard to sequences; a block does the sequences it meets one after the other. The last rows come first: with a
// causal mask they take longest.
//
// Codes of fp8 (lib/flash_fp8.h) become f16 on their way: the copying warpgroup loads, widens and stores them, and puts a tile's scales beside it.
#include <algorithm>

#include "cuda/kernels/flash.h"
#include "cuda/lib/flash_fp8.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/tensor_map.h"
#include "cuda/lib/tiles.h"
#include "cuda/lib/wgmma.h"

namespace ridge::cuda {
namespace {

constexpr int kRows = 128, kConsumers = 2, kThreads = 128 * (kConsumers + 1), kPanelBytes = kFlashTile * 128, kCopierBarrier = 3;

template <int kDim>
constexpr int kKvBytes = kDim / 64 * kPanelBytes;                           // [panel of 64 dimensions][position][128 bytes, swizzled]
template <int kDim>
constexpr int kQueryBytes = kDim / 64 * kRows * 128;                        // [warpgroup][panel][row of 64][128 bytes, swizzled]
template <class T, int kDim>
constexpr int kTilesThatFit = ((kIsFp8<T> ? 221 : 225) * 1024 - kQueryBytes<kDim>) / kKvBytes<kDim>;
template <class T, int kDim>
constexpr int kStages = kTilesThatFit<T, kDim> < 8 ? kTilesThatFit<T, kDim> : 8;
constexpr int kScaleStride = kFlashTile + 4;
template <class T, int kDim>
constexpr int kScaleBytes = kIsFp8<T> ? kStages<T, kDim> * kScaleStride * 4 : 0;      // [stage][position], those of V as given, and then what is owed to o; behind the queries

// Rows [first, last) of one sequence, and the tiles they see.
struct Segment { int first, last, seq, first_position, last_position, first_tile, last_tile, first_seen; };

__device__ bool next_segment(Segment& s, int from, int end, const PagedAttention& op, const StepView& step) {
  while (from < end) {
    const StepSeq& seq = step.seqs[step.seq_of[from]];
    s.first = from, s.last = min(end, seq.first_row + seq.n_rows), s.seq = step.seq_of[from];
    if (seq.n_rows >= kFlashManyRows) {
      s.first_position = step.positions[s.first], s.last_position = step.positions[s.last - 1];
      s.first_seen = op.window > 0 ? max(0, s.first_position - op.window + 1) : 0;
      s.first_tile = s.first_seen / kFlashTile, s.last_tile = s.last_position / kFlashTile;
      return true;
    }
    from = s.last;
  }
  return false;
}

// The warpgroup's 64 rows in the format of K, zeros for rows that are not of this sequence.
template <class T, int kDim>
__device__ void put_queries(std::byte* to, int group, int first_row, int tokens_a_block, int share, int kv_head, int first, int last, const PagedAttention& op) {
  for (int i = threadIdx.x % 128; i < 64 * kDim / 8; i += 128) {
    const int r = i / (kDim / 8), c = i % (kDim / 8), row = group * 64 + r, token = first_row + row / share;
    uint4 v{0, 0, 0, 0};
    if (row < tokens_a_block * share && token >= first && token < last) {
      const float* q = reinterpret_cast<const float*>(op.q.data + token * op.q.stride) + (kv_head * share + row % share) * kDim;
      if constexpr (kIsFp8<T>) {
        const float* x = q + c / 2 * 16 + c % 2 * 2;
        v = {pack_query(x[0], x[1]), pack_query(x[4], x[5]), pack_query(x[8], x[9]), pack_query(x[12], x[13])};
      } else {
        const float4* x = reinterpret_cast<const float4*>(q + 8 * c);
        const float4 a = x[0], b = x[1];
        v = {pack<T>(a.x, a.y), pack<T>(a.z, a.w), pack<T>(b.x, b.y), pack<T>(b.z, b.w)};
      }
    }
    *reinterpret_cast<uint4*>(to + c / 8 * 64 * 128 + swizzled(r, c % 8)) = v;
  }
}

// 16 codes as two chunks of f16: keys in the order of the queries, values in theirs.
template <bool kKeys>
__device__ void widen_chunk(uint4& first, uint4& second, const uint4& codes) {
  uint32_t low[4], high[4];
  widen_codes(low[0], high[0], codes.x);
  widen_codes(low[1], high[1], codes.y);
  widen_codes(low[2], high[2], codes.z);
  widen_codes(low[3], high[3], codes.w);
  first = kKeys ? uint4{low[0], low[1], low[2], low[3]} : uint4{low[0], high[0], low[1], high[1]};
  second = kKeys ? uint4{high[0], high[1], high[2], high[3]} : uint4{low[2], high[2], low[3], high[3]};
}

// fp8: what is owed to the tile's result comes with its factor of the fold, which gives the same bits unless it is too small a number to be exact. True: it is not paid.
__device__ bool pay_later(float (&take)[2], const float (&owed)[2]) {
  const float both[2] = {__fmul_rn(take[0], owed[0]), __fmul_rn(take[1], owed[1])};
  const bool small = (take[0] > 0 && both[0] < 0x1p-126f) || (take[1] > 0 && both[1] < 0x1p-126f);
  if (__any_sync(0xffffffffu, small)) return true;
  take[0] = both[0], take[1] = both[1];
  return false;
}

// K and V of 16 bits as the tensor copy engine finds them; without them all rows come chunk by chunk.
struct PageMaps { CUtensorMap of[2]; bool are_there; };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Where one is in the block's ring of tiles, K and V in turn.
template <int kDepth>
struct Ring {
  std::byte* tiles;
  Barrier *full, *empty;
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance(int n = 1) {
    if ((stage += n) >= kDepth) stage -= kDepth, phase ^= 1;
  }
  __device__ void await_full() const { await(&full[stage], phase); }
  __device__ void await_empty() const { await(&empty[stage], phase ^ 1); }
};

// A tile of which all positions are seen, by one warp: all that its pages hold.
template <int kDim, int kDepth>
__device__ void copy_whole_tile(Ring<kDepth>& ring, const PageMaps& maps, int32_t page, int kv_head, int page_size, int lane, bool copies) {
  const int n_pages = kFlashTile / page_size;
  for (int plane = 0; plane < 2; ++plane) {
    ring.await_empty();
    if (copies) {
      Barrier* const full = &ring.full[ring.stage];
      if (lane == 0) arrive_expecting(full, kKvBytes<kDim>);
#pragma unroll 1
      for (int i = 0; i < n_pages; ++i) {
        const int32_t from = __shfl_sync(0xffffffffu, page, i * (page_size / 16));
        std::byte* const to = ring.tiles + ring.stage * kKvBytes<kDim> + i * page_size * 128;
        if (lane == 0) {
#pragma unroll
          for (int panel = 0; panel < kDim / 64; ++panel) copy_box(to + panel * kPanelBytes, maps.of[plane], panel * 64, kv_head * page_size, from, full);
        }
      }
    }
    ring.advance();
  }
}

// A tile of which some positions are not seen: those become zeros, since what lies in a page there may be no numbers. Both planes are on their way before one is waited for.
template <int kDim, int kDepth>
__device__ void copy_part_of_tile(Ring<kDepth>& ring, const Segment& s, int tile, const KvRef& kv, int32_t page, int kv_head) {
  constexpr int kChunks = kDim / 8, kRowsAtOnce = 128 / kChunks;
  const int thread = threadIdx.x % 128, chunk = thread % kChunks, row = thread / kChunks, first = tile * kFlashTile;
  Barrier* full[2];
  for (int plane = 0; plane < 2; ++plane) {
    ring.await_empty();
    full[plane] = &ring.full[ring.stage];
    std::byte* const to = ring.tiles + ring.stage * kKvBytes<kDim> + chunk / 8 * kPanelBytes + swizzled(row, chunk % 8);
    const std::byte* const from_head = kv.base + kv.offsets[plane] + ((int64_t{kv_head} * kv.page_size + row) * kDim + chunk * 8) * 2;
#pragma unroll 1
    for (int i = 0; i < kFlashTile / 16; ++i) {
      const std::byte* const from = from_head + int64_t{__shfl_sync(0xffffffffu, page, i)} * kv.page_bytes + ((first + i * 16) & (kv.page_size - 1)) * (kDim * 2);
#pragma unroll
      for (int j = 0; j < 16 / kRowsAtOnce; ++j) {
        const int position = first + i * 16 + j * kRowsAtOnce + row;
        copy_chunk(to + (i * 16 + j * kRowsAtOnce) * 128, from + j * kRowsAtOnce * (kDim * 2), position >= s.first_seen && position <= s.last_position);
      }
    }
    commit_chunks();
    ring.advance();
  }
  for (int plane = 0; plane < 2; ++plane) {
    if (plane == 0) await_chunks<1>();
    else await_chunks<0>();
    fence_for_wgmma();
    sync_threads_of(kCopierBarrier, 128);
    if (thread == 0) arrive(full[plane]);
  }
}

#endif

template <class T, int kDim, bool kCapped>
__global__ void __launch_bounds__(kThreads, 1) many_rows_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ StepView step, const __grid_constant__ PageMaps maps,
                                                               std::byte* out_tiles, int n_blocks) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kDepth = kStages<T, kDim>;
  extern __shared__ std::byte raw_shared[];
  __shared__ Barrier full[kDepth], empty[kDepth];
  std::byte* tiles = raw_shared + (-shared_address(raw_shared) & 1023);
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;     // the compiler sees that lanes agree
  start_dependents();
  if (threadIdx.x == 0) {
    if (maps.are_there) prefetch_map(maps.of[0]), prefetch_map(maps.of[1]);
    for (int s = 0; s < kDepth; ++s) init_barrier(&full[s], kIsFp8<T> ? 128 : 1), init_barrier(&empty[s], kConsumers * 4);
    publish_barriers();
  }
  __syncthreads();
  await_predecessors();
  const int share = op.n_heads / op.n_kv_heads, kv_head = blockIdx.x % op.n_kv_heads, block = n_blocks - 1 - int(blockIdx.x) / op.n_kv_heads;
  const int tokens_a_block = kRows / share, first_row = block * tokens_a_block, end_row = min(first_row + tokens_a_block, int(op.q.rows));
  Ring<kDepth> ring{tiles, full, empty};
  Segment s;
  [[maybe_unused]] float* const scales = reinterpret_cast<float*>(tiles + kDepth * kKvBytes<kDim> + kQueryBytes<kDim>);

  if (group == kConsumers) {
    shrink_registers<kIsFp8<T> ? 72 : 40>();
    const int thread = threadIdx.x % 128, page_size = op.kv.page_size;
    for (int from = first_row; next_segment(s, from, end_row, op, step); from = s.last) {
      const int32_t* pages = step.pages + step.seqs[s.seq].first_page[op.kv.group];
      // Lane i looks up the page of the tile's i-th 16 positions, one tile ahead: the copies never wait for the table.
      const auto page_of = [&](int tile) {
        const int position = tile * kFlashTile + lane * 16;
        return lane < 8 && position + 16 > s.first_seen && position <= s.last_position ? pages[position / page_size] : 0;
      };
      int next_page = page_of(s.first_tile);
      for (int tile = s.first_tile; tile <= s.last_tile; ++tile) {
        const int page = next_page;
        if (tile < s.last_tile) next_page = page_of(tile + 1);
        if constexpr (kIsFp8<T>) {
          constexpr int kCodeChunks = kDim / 16, kCodeRows = 128 / kCodeChunks, kTurns = kFlashTile / kCodeRows, kAtOnce = 4;
          const int code_chunk = thread % kCodeChunks, code_row = thread / kCodeChunks, first = tile * kFlashTile;
          const auto seen = [&](int position) { return position >= s.first_seen && position <= s.last_position; };
          const auto bring = [&]<int kPlane>(std::integral_constant<int, kPlane>) {
            const auto load = [&](int i) {
              const int r = i * kCodeRows + code_row, position = first + r;
              const int32_t of_row = __shfl_sync(0xffffffffu, page, r / 16);
              uint4 v{0, 0, 0, 0};
              if (seen(position))
                v = __ldcg(reinterpret_cast<const uint4*>(op.kv.plane(kPlane, of_row) + int64_t{kv_head * page_size + (position & (page_size - 1))} * kDim) + code_chunk);
              return v;
            };
            uint4 codes[kAtOnce];                                            // on their way
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) codes[i] = load(i);
            // Scales, by the first warp: four positions a lane.
            const int four = first + 4 * lane;
            const int32_t of_four = __shfl_sync(0xffffffffu, page, lane / 4);
            float4 scale{0, 0, 0, 0};
            if (thread < 32 && four + 3 >= s.first_seen && four <= s.last_position) {
              scale = __ldcg(reinterpret_cast<const float4*>(reinterpret_cast<const float*>(op.kv.scales(kPlane, of_four)) + kv_head * page_size + (four & (page_size - 1))));
              if (!seen(four)) scale.x = 0;
              if (!seen(four + 1)) scale.y = 0;
              if (!seen(four + 2)) scale.z = 0;
              if (!seen(four + 3)) scale.w = 0;
            }
            ring.await_empty();
            std::byte* const to = tiles + ring.stage * kKvBytes<kDim> + code_chunk / 4 * kPanelBytes;
#pragma unroll
            for (int i = 0; i < kTurns; ++i) {
              const int r = i * kCodeRows + code_row;
              uint4 low, high;
              widen_chunk<kPlane == 0>(low, high, codes[i % kAtOnce]);
              if (i + kAtOnce < kTurns) codes[i % kAtOnce] = load(i + kAtOnce);
              *reinterpret_cast<uint4*>(to + swizzled(r, code_chunk % 4 * 2)) = low;
              *reinterpret_cast<uint4*>(to + swizzled(r, code_chunk % 4 * 2 + 1)) = high;
            }
            if (thread < 32) {
              float* const to_scales = scales + ring.stage * kScaleStride;
              if constexpr (kPlane == 1) {
                const ValueScaling scaling = value_scaling(scale);
                scale = scaled(scale, scaling.given);
                if (lane == 0) to_scales[kFlashTile] = scaling.owed;
              }
              reinterpret_cast<float4*>(to_scales)[lane] = scale;
            }
            fence_for_wgmma();
            arrive(&full[ring.stage]);
            ring.advance();
          };
          bring(std::integral_constant<int, 0>{});
          bring(std::integral_constant<int, 1>{});
        } else {
          const int first = tile * kFlashTile;
          if (maps.are_there && first >= s.first_seen && first + kFlashTile - 1 <= s.last_position) copy_whole_tile<kDim>(ring, maps, page, kv_head, page_size, lane, thread < 32);
          else copy_part_of_tile<kDim>(ring, s, tile, op.kv, page, kv_head);
        }
      }
    }
  } else {
    grow_registers<kIsFp8<T> ? 216 : 232>();
    const int g = lane / 4, q = lane % 4;
    const float factor = exponent_factor(op);
    std::byte* queries = tiles + kDepth * kKvBytes<kDim> + group * (kQueryBytes<kDim> / 2);
    const uint64_t own_queries = wgmma_tile(queries), first_tile = wgmma_tile(tiles);
    Ring<kDepth> keys = ring, values = ring;
    values.advance();
    for (int from = first_row; next_segment(s, from, end_row, op, step); from = s.last) {
      int token[2], head[2], sees_from[2], sees_to[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = group * 64 + warp % 4 * 16 + g + 8 * r;
        token[r] = first_row + row / share, head[r] = kv_head * share + row % share;
        const bool active = row < tokens_a_block * share && token[r] >= s.first && token[r] < s.last;
        if (!active) token[r] = -1;
        const int position = active ? step.positions[token[r]] : s.first_position;
        sees_from[r] = op.window > 0 ? position - op.window + 1 : 0, sees_to[r] = position + 1;
      }
      sync_threads_of(1 + group, 128);                                       // nobody reads the queries of the segment before any more
      put_queries<T, kDim>(queries, group, first_row, tokens_a_block, share, kv_head, s.first, s.last, op);
      fence_for_wgmma();
      sync_threads_of(1 + group, 128);
      float total[kDim / 2], m[2] = {-CUDART_INF_F, -CUDART_INF_F}, l[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) total[i] = 0;
      float scores[64], out[32], tile_m[2], tile_l[2], keep[2], take[2];
      [[maybe_unused]] float owed[2];                                        // fp8: to the tile's result
      [[maybe_unused]] bool owes = false;
      uint32_t p[8][4];
      const auto leave = [&](Ring<kDepth>& at) {
        if (lane == 0) arrive(&at.empty[at.stage]);
        at.advance(2);
      };
      const auto start_scores = [&] {
        keys.await_full();
        const uint64_t tile = first_tile + keys.stage * (kKvBytes<kDim> >> 4);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDim / 16; ++k) {
          const uint64_t a = own_queries + k / 4 * (64 * 128 >> 4) + 2 * (k % 4), b = tile + k / 4 * (kPanelBytes >> 4) + 2 * (k % 4);
          if (k == 0) wgmma<OperandOf<T>, true>(scores, a, b);
          else wgmma<OperandOf<T>, false>(scores, a, b);
        }
        wgmma_commit();
      };
      // The tile's o, 64 dimensions at a time: with those of all tiles and the next scores that is what registers have room for.
      const auto start_mix = [&](int panel) {
        const uint64_t tile = first_tile + values.stage * (kKvBytes<kDim> >> 4) + panel * (kPanelBytes >> 4);
        wgmma_fence();
#pragma unroll
        for (int t = 0; t < 8; ++t) {
          if (t == 0) wgmma<OperandOf<T>, true, true>(out, p[t], tile);
          else wgmma<OperandOf<T>, true, false>(out, p[t], tile + t * (2048 >> 4));
        }
        wgmma_commit();
      };
      const auto start_fold = [&] {
#pragma unroll
        for (int r = 0; r < 2; ++r) fold(m[r], l[r], tile_m[r], tile_l[r], factor, keep[r], take[r]);
        if constexpr (kIsFp8<T>) owes = pay_later(take, owed);
      };
      const auto add = [&](int panel) {
        hold(out);
        if (kIsFp8<T> && owes) {
#pragma unroll
          for (int i = 0; i < 32; ++i) out[i] = __fmul_rn(out[i], owed[i / 2 % 2]);
        }
#pragma unroll
        for (int i = 0; i < 32; ++i) total[32 * panel + i] = folded(total[32 * panel + i], out[i], keep[i / 2 % 2], take[i / 2 % 2]);
      };
      const auto seen_in_part = [&](int tile) {
        const int first = tile * kFlashTile;
        return first + kFlashTile - 1 > s.first_position || (op.window > 0 && first <= s.last_position - op.window);
      };
      const auto end_scores = [&](int tile) {
        hold(scores);
        if constexpr (kIsFp8<T>) {
          scale_scores(scores, scales + keys.stage * kScaleStride, q);
          __syncwarp();                                                      // all lanes have read the scales
        }
        leave(keys);
        if constexpr (kCapped) cap_scores(scores, op.scale, op.softcap);
        if (seen_in_part(tile)) mask_scores(scores, tile * kFlashTile, sees_from, sees_to, q);
        tile_maximum(tile_m, scores);
      };
      // Weights become operands when those of the tile before are not wanted any more.
      const auto end_weights = [&](int tile) {
        hold(scores);
        if constexpr (kIsFp8<T>) {
          values.await_full();                                               // the scales
          const float* const given = scales + values.stage * kScaleStride;
          owed[0] = owed[1] = given[kFlashTile];
          if (seen_in_part(tile)) rescale_weights(scores, owed, given, tile * kFlashTile, sees_from, sees_to, q);
          pack_weights(p, scores, given, q);
        } else {
          pack_weights<T>(p, scores);
        }
      };
      start_scores();
      wgmma_await<0>();
      end_scores(s.first_tile);
      tile_weights(scores, tile_l, tile_m, factor);
      end_weights(s.first_tile);
#pragma unroll 1
      for (int tile = s.first_tile; tile < s.last_tile; ++tile) {
        start_scores();
        values.await_full();
        start_mix(0);
        start_fold();
        wgmma_await<1>();
        end_scores(tile + 1);
        if constexpr (kDim == 128) {
          hold(tile_m);
          end_block(n_blocks);
          wgmma_await<0>();
          add(0);
          start_mix(1);
        }
        tile_weights(scores, tile_l, tile_m, factor);
        hold(scores);
        end_block(n_blocks);
        wgmma_await<0>();
        add(kDim / 64 - 1);
        leave(values);
        end_weights(tile + 1);
      }
      values.await_full();
      start_fold();
#pragma unroll
      for (int panel = 0; panel < kDim / 64; ++panel) {
        start_mix(panel);
        wgmma_await<0>();
        add(panel);
      }
      leave(values);
      const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (token[r] < 0) continue;
        const float norm = norm_of(m[r], l[r], factor, sinks ? sinks + head[r] : nullptr);
        if (out_tiles) {
          const int n_units = (op.n_heads * kDim + 63) / 64;
#pragma unroll
          for (int j = 0; j < kDim / 8; ++j)
            *reinterpret_cast<uint32_t*>(out_tiles + tile_place(token[r], head[r] * kDim + 8 * j + 2 * q, n_units)) =
                pack<__nv_bfloat16>(__fmul_rn(total[4 * j + 2 * r], norm), __fmul_rn(total[4 * j + 2 * r + 1], norm));
        } else {
          float* out = reinterpret_cast<float*>(op.out.data + token[r] * op.out.stride) + head[r] * kDim + 2 * q;
#pragma unroll
          for (int j = 0; j < kDim / 8; ++j) *reinterpret_cast<float2*>(out + 8 * j) = {__fmul_rn(total[4 * j + 2 * r], norm), __fmul_rn(total[4 * j + 2 * r + 1], norm)};
        }
      }
    }
  }
#endif
}

template <class T, int kDim, bool kCapped>
void launch(const PagedAttention& op, std::byte* tiles, const Launch& l) {
  const int tokens_a_block = kRows / (op.n_heads / op.n_kv_heads), n_blocks = int(op.q.rows + tokens_a_block - 1) / tokens_a_block;
  constexpr int kBytes = 1024 + kStages<T, kDim> * kKvBytes<kDim> + kQueryBytes<kDim> + kScaleBytes<T, kDim>;
  PageMaps maps{};
  if constexpr (!kIsFp8<T>) maps.are_there = map_plane(maps.of[0], op.kv, 0) && map_plane(maps.of[1], op.kv, 1);
  const auto kernel = many_rows_kernel<T, kDim, kCapped>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  launch_kernel(kernel, n_blocks * op.n_kv_heads, kThreads, kBytes, l.stream, op, l.step, maps, tiles, n_blocks);
}

}  // namespace

bool flash_many_rows_supports(const PagedAttention& op, const Launch& l) { return kHasSm90a && l.compute_capability == 90 && op.head_dim <= 128; }

void flash_many_rows(const PagedAttention& op, std::byte* tiles, const Launch& l) {
  const auto launch_as = [&]<class T>(T) {
    if (op.softcap > 0) op.head_dim == 64 ? launch<T, 64, true>(op, tiles, l) : launch<T, 128, true>(op, tiles, l);
    else op.head_dim == 64 ? launch<T, 64, false>(op, tiles, l) : launch<T, 128, false>(op, tiles, l);
  };
  switch (op.kv.planes[0].format) {
    case FormatId::f16: launch_as(__half{}); break;
    case FormatId::fp8_e4m3: launch_as(E4m3{}); break;
    default: launch_as(__nv_bfloat16{}); break;
  }
}

}  // namespace ridge::cuda
