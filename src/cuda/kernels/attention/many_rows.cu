// Attention of whole prompts on sm_90a. A block takes 128 rows, tokens x the query heads that share a KV head, and walks over the tiles of 128 positions that they
// see. One warpgroup brings K and V rows from their pages into a ring of tiles in shared memory, by the tensor copy engine where a whole tile is seen; two take 64 rows each:
// while one is at its softmax, the other has the tensor cores. Queries stay in shared memory, a tile's result and the fold of those before it in registers.
//
// A warpgroup's own products run beside its softmax, too: it asks for the next tile's scores and for the first 64 dimensions of this tile's result, takes the maximum of the
// scores while those come, folds them, asks for the other 64 dimensions and makes weights meanwhile. The two take turns at asking for the first two, which keeps them half a
// tile apart: in step, both would wait for the tensor cores and then for the exponential unit.
//
// Rows of a step are cut into blocks without regard to sequences; a block does the sequences it meets one after the other, for one KV head or several. The last rows come
// first: with a causal mask they take longest. How tiles come into shared memory is in kernels/attention/kv_tiles.h; codes of fp8 (lib/flash_fp8.h) become f16 on their way.
//
// Heads of 256 leave no registers for two tiles at once: weights lie in shared memory, and a warpgroup takes all of a tile's result, asks for the next scores and gives
// the turn away, so that its softmax runs beside the other's products alone. The ring has room for one tile of K and one of V.
#include "cuda/kernels/attention/flash.h"
#include "cuda/kernels/attention/flash_form.h"
#include "cuda/kernels/attention/kv_tiles.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/tiles.h"

namespace ridge::cuda {
namespace {

constexpr int kRows = 128, kConsumers = 2, kThreads = 128 * (kConsumers + 1);
[[maybe_unused]] constexpr int kTurnBarriers = 4;                            // of the first warpgroup, of the second

// Registers of a thread that copies and of one that multiplies. A block has what it starts with, 168 a thread: who asks for more waits for ever.
template <class T, int kDim>
constexpr int kCopierRegisters = kIsFp8<T> ? 72 : kDim > 128 ? 24 : 40;
template <class T, int kDim>
constexpr int kOwnRegisters = kIsFp8<T> ? 216 : kDim > 128 ? 240 : 232;
template <class T, int kDim>
constexpr bool kHasRegisters = kCopierRegisters<T, kDim> + 2 * kOwnRegisters<T, kDim> <= 3 * 168;
static_assert(kHasRegisters<E4m3, 128> && kHasRegisters<__half, 128> && kHasRegisters<__half, 256>);

// Shared memory, from a multiple of 1024 on: the ring of tiles | queries | heads of 256: weights | fp8: slots of codes | fp8: scales [stage][kScaleStride]
template <int kDim>
constexpr int kQueryBytes = kDim / 64 * kRows * 128;                        // [warpgroup][panel][row of 64][128 bytes, swizzled]
template <int kDim>
constexpr bool kKeepsWeights = kDim <= 128;                                 // in registers
template <int kDim>
constexpr int kWeightBytes = kKeepsWeights<kDim> ? 0 : kFlashTile / 64 * kRows * 128;      // [warpgroup][panel of 64 positions][row of 64][128 bytes, swizzled]
template <class T, int kDim>
constexpr int kSlotBytes = kIsFp8<T> ? kCodeSlots * kCodeBytes<kDim> : 0;
template <class T, int kDim>
constexpr int kTilesThatFit = ((kIsFp8<T> ? 221 : 225) * 1024 - kQueryBytes<kDim> - kWeightBytes<kDim> - kSlotBytes<T, kDim>) / kKvBytes<kDim>;
template <class T, int kDim>
constexpr bool kHasRoom = kTilesThatFit<T, kDim> >= 2;                      // for K and V
template <class T, int kDim>
constexpr int kStages = kTilesThatFit<T, kDim> < 8 ? kTilesThatFit<T, kDim> : 8;
template <class T, int kDim>
constexpr int kScaleBytes = kIsFp8<T> ? kStages<T, kDim> * kScaleStride * 4 : 0;

[[maybe_unused]] __device__ bool next_segment(Segment& s, int from, int end, const PagedAttention& op, const StepView& step) {
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

// What a block does: the sequences that its rows meet, for each of its KV heads in turn.
struct Work { int kv_head, end_head, first_row, end_row, from; };

[[maybe_unused]] __device__ bool next_work(Segment& s, Work& w, const PagedAttention& op, const StepView& step) {
  for (; w.kv_head < w.end_head; ++w.kv_head, w.from = w.first_row)
    if (next_segment(s, w.from, w.end_row, op, step)) {
      w.from = s.last;
      return true;
    }
  return false;
}

// Of the warpgroup's 64 rows, those from `from` on that registers have room for, in the format of K, zeros for rows that are not of this sequence. All are on their way before one
// is waited for, those that are not wanted from where another lies: a test around each load made them wait for each other.
template <int kDim>
constexpr int kQueriesAtOnce = kDim > 128 ? 32 : 64;
template <class T, int kDim>
__device__ void put_queries(std::byte* to, int from, int group, int first_row, int tokens_a_block, int share, int kv_head, int first, int last, const PagedAttention& op) {
  constexpr int kChunks = kDim / 8, kTurns = kQueriesAtOnce<kDim> * kChunks / 128;
  const int thread = threadIdx.x % 128, c = thread % kChunks;
  bool wanted[kTurns];
  const std::byte* of_token[kTurns];
  int in_row[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int row = group * 64 + from + i * (128 / kChunks) + thread / kChunks, token = first_row + row / share;
    wanted[i] = row < tokens_a_block * share && token >= first && token < last;
    of_token[i] = op.q.data + (wanted[i] ? token : first) * op.q.stride;
    in_row[i] = (kv_head * share + row % share) * kDim;
  }
  const auto place = [&](int i) { return reinterpret_cast<uint4*>(to + c / 8 * 64 * 128 + swizzled(from + i * (128 / kChunks) + thread / kChunks, c % 8)); };
  if (!kIsFp8<T> && op.q.format != FormatId::f32) {                          // rounded already
    uint4 v[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i) v[i] = *reinterpret_cast<const uint4*>(of_token[i] + (in_row[i] + 8 * c) * 2);
#pragma unroll
    for (int i = 0; i < kTurns; ++i) *place(i) = wanted[i] ? v[i] : uint4{0, 0, 0, 0};
    return;
  }
  float4 v[kTurns][2];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const float* q = reinterpret_cast<const float*>(of_token[i]) + in_row[i];
    if constexpr (kIsFp8<T>) {                                               // the order of lib/flash_fp8.h
      const float2* x = reinterpret_cast<const float2*>(q + c / 2 * 16 + c % 2 * 2);
      v[i][0] = {x[0].x, x[0].y, x[2].x, x[2].y}, v[i][1] = {x[4].x, x[4].y, x[6].x, x[6].y};
    } else {
      const float4* x = reinterpret_cast<const float4*>(q + 8 * c);
      v[i][0] = x[0], v[i][1] = x[1];
    }
  }
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const auto packed = [&](float low, float high) { return !wanted[i] ? 0u : kIsFp8<T> ? pack_query(low, high) : pack<OperandOf<T>>(low, high); };
    const auto& [a, b] = v[i];
    *place(i) = {packed(a.x, a.y), packed(a.z, a.w), packed(b.x, b.y), packed(b.z, b.w)};
  }
}

// fp8: what is owed to the tile's result comes with its factor of the fold, which gives the same bits unless it is too small a number to be exact. True: it is not paid.
[[maybe_unused]] __device__ bool pay_later(float (&take)[2], const float (&owed)[2]) {
  const float both[2] = {__fmul_rn(take[0], owed[0]), __fmul_rn(take[1], owed[1])};
  const bool small = (take[0] > 0 && both[0] < 0x1p-126f) || (take[1] > 0 && both[1] < 0x1p-126f);
  if (__any_sync(0xffffffffu, small)) return true;
  take[0] = both[0], take[1] = both[1];
  return false;
}

template <class T, int kDim, bool kCapped>
__global__ void __launch_bounds__(kThreads, 1) many_rows_kernel(const __grid_constant__ PagedAttention op, const __grid_constant__ StepView step,
                                                               const __grid_constant__ PageMaps maps, Tiles out_tiles, int n_blocks, int heads_a_block) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kDepth = kStages<T, kDim>;
  RIDGE_DYNAMIC_SHARED(raw_shared, 1);
  __shared__ Barrier full[kDepth], empty[kDepth], codes_full[kCodeSlots];
  std::byte* tiles = raw_shared + (-shared_address(raw_shared) & 1023);
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;     // the compiler sees that lanes agree
  start_dependents();
  if (threadIdx.x == 0) {
    if (maps.are_there) prefetch_map(maps.of[0]), prefetch_map(maps.of[1]);
    for (int s = 0; s < kDepth; ++s) init_barrier(&full[s], kIsFp8<T> ? 4 * kWarpArrivals : 1), init_barrier(&empty[s], kConsumers * 4 * kWarpArrivals);
    for (int s = 0; s < kCodeSlots; ++s) init_barrier(&codes_full[s], 1);
    publish_barriers();
  }
  __syncthreads();
  await_predecessors();
  const int share = op.n_heads / op.n_kv_heads, n_groups = op.n_kv_heads / heads_a_block, first_head = blockIdx.x % n_groups * heads_a_block;
  const int tokens_a_block = kRows / share, first_row = (n_blocks - 1 - int(blockIdx.x) / n_groups) * tokens_a_block;
  Work work{first_head, first_head + heads_a_block, first_row, min(first_row + tokens_a_block, int(op.q.rows)), first_row};
  Ring<kDepth> ring{tiles, full, empty};
  Segment s;
  [[maybe_unused]] std::byte* const slots = tiles + kDepth * kKvBytes<kDim> + kQueryBytes<kDim> + kWeightBytes<kDim>;
  [[maybe_unused]] float* const scales = reinterpret_cast<float*>(slots + kSlotBytes<T, kDim>);

  if (group == kConsumers) {
    shrink_registers<kCopierRegisters<T, kDim>>();
    [[maybe_unused]] CodeSlots codes{slots, codes_full};
    while (next_work(s, work, op, step)) {
      const HeadPages head{op.kv, step.pages + step.seqs[s.seq].first_page[op.kv.group], work.kv_head};
      if constexpr (kIsFp8<T>) widen_tiles<kDim>(ring, codes, scales, s, head);
      else copy_tiles<kDim>(ring, s, maps, head);
    }
  } else {
    grow_registers<kOwnRegisters<T, kDim>>();
    const int g = lane / 4, q = lane % 4;
    const float factor = exponent_factor(op);
    std::byte* queries = tiles + kDepth * kKvBytes<kDim> + group * (kQueryBytes<kDim> / 2);
    [[maybe_unused]] std::byte* const weights = tiles + kDepth * kKvBytes<kDim> + kQueryBytes<kDim> + group * (kWeightBytes<kDim> / 2);
    [[maybe_unused]] const uint64_t own_weights = wgmma_tile(weights);
    const uint64_t own_queries = wgmma_tile(queries), first_tile = wgmma_tile(tiles), first_values = wgmma_tile(tiles, kPanelBytes);
    Ring<kDepth> keys = ring, values = ring;
    values.advance();
    const auto await_turn = [&] { sync_threads_of(kTurnBarriers + group, kConsumers * 128); };
    const auto give_turn = [&] { arrive_among_threads(kTurnBarriers + 1 - group, kConsumers * 128); };
    if (group == 1) give_turn();
    while (next_work(s, work, op, step)) {
      int token[2], head[2], sees_from[2], sees_to[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = group * 64 + warp % 4 * 16 + g + 8 * r;
        token[r] = first_row + row / share, head[r] = work.kv_head * share + row % share;
        const bool active = row < tokens_a_block * share && token[r] >= s.first && token[r] < s.last;
        if (!active) token[r] = -1;
        const int position = active ? step.positions[token[r]] : s.first_position;
        sees_from[r] = op.window > 0 ? position - op.window + 1 : 0, sees_to[r] = position + 1;
      }
      sync_threads_of(1 + group, 128);                                       // nobody reads the queries of the segment before any more
#pragma unroll 1
      for (int from = 0; from < 64; from += kQueriesAtOnce<kDim>)
        put_queries<T, kDim>(queries, from, group, first_row, tokens_a_block, share, work.kv_head, s.first, s.last, op);
      fence_for_wgmma();
      sync_threads_of(1 + group, 128);
      float total[kDim / 2], m[2] = {-CUDART_INF_F, -CUDART_INF_F}, l[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) total[i] = 0;
      float scores[64], out[kKeepsWeights<kDim> ? 1 : 2][32], tile_m[2], tile_l[2], keep[2], take[2];
      [[maybe_unused]] float owed[2];                                        // fp8: to the tile's result
      [[maybe_unused]] bool owes = false;
      [[maybe_unused]] uint32_t p[8][4];
      const auto leave = [&](Ring<kDepth>& at) {
        arrive_as_warp(&at.empty[at.stage], lane);
        at.advance(2);
      };
      const auto start_scores = [&] {
        keys.await_full();
        if constexpr (!kKeepsWeights<kDim>) set_zero(scores);
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
      // The tile's o, 64 dimensions at a time: with those of all tiles and the next scores that is what registers have room for, or twice that without them.
      const auto out_of = [&](int panel) -> float(&)[32] { return out[kKeepsWeights<kDim> ? 0 : panel % 2]; };
      const auto start_mix = [&](int panel) {
        float(&o)[32] = out_of(panel);
        if constexpr (!kKeepsWeights<kDim>) set_zero(o);
        const uint64_t tile = first_values + values.stage * (kKvBytes<kDim> >> 4) + panel * (kPanelBytes >> 4);
        wgmma_fence();
#pragma unroll
        for (int t = 0; t < 8; ++t) {
          const auto multiply = [&](const auto& a) {
            if (t == 0) wgmma<OperandOf<T>, true, true>(o, a, tile);
            else wgmma<OperandOf<T>, true, false>(o, a, tile + t * (2048 >> 4));
          };
          if constexpr (kKeepsWeights<kDim>) multiply(p[t]);
          else multiply(own_weights + t / 4 * (64 * 128 >> 4) + 2 * (t % 4));
        }
        wgmma_commit();
      };
      const auto start_fold = [&] {
#pragma unroll
        for (int r = 0; r < 2; ++r) fold(m[r], l[r], tile_m[r], tile_l[r], factor, keep[r], take[r]);
        if constexpr (kIsFp8<T>) owes = pay_later(take, owed);
      };
      const auto add = [&](int panel) {
        float(&o)[32] = out_of(panel);
        hold(o);
        if (kIsFp8<T> && owes) {
#pragma unroll
          for (int i = 0; i < 32; ++i) o[i] = __fmul_rn(o[i], owed[i / 2 % 2]);
        }
#pragma unroll
        for (int i = 0; i < 32; ++i) total[32 * panel + i] = folded(total[32 * panel + i], o[i], keep[i / 2 % 2], take[i / 2 % 2]);
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
        } else if constexpr (kKeepsWeights<kDim>) {
          pack_weights<T>(p, scores);
        } else {
          sync_threads_of(1 + group, 128);                                   // nobody multiplies those of the tile before any more
#pragma unroll
          for (int j = 0; j < 16; ++j)
#pragma unroll
            for (int r = 0; r < 2; ++r)
              *reinterpret_cast<uint32_t*>(weights + j / 8 * 64 * 128 + swizzled(warp % 4 * 16 + g + 8 * r, j % 8) + 4 * q) = pack<T>(scores[4 * j + 2 * r], scores[4 * j + 2 * r + 1]);
          fence_for_wgmma();
          sync_threads_of(1 + group, 128);
        }
      };
      const auto mix_all = [&] {
        constexpr int kPanels = kDim / 64, kAhead = kKeepsWeights<kDim> ? 0 : 1;
        values.await_full();
        start_fold();
        if constexpr (kAhead > 0) start_mix(0);
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel) {
          if (panel + kAhead < kPanels) {
            start_mix(panel + kAhead);
            wgmma_await<kAhead>();
          } else {
            wgmma_await<0>();
          }
          add(panel);
        }
        leave(values);
      };
      if constexpr (kKeepsWeights<kDim>) {
        start_scores();
        wgmma_await<0>();
        end_scores(s.first_tile);
        tile_weights(scores, tile_l, tile_m, factor);
        end_weights(s.first_tile);
#pragma unroll 1
        for (int tile = s.first_tile; tile < s.last_tile; ++tile) {
          await_turn();
          start_scores();
          values.await_full();
          start_mix(0);
          give_turn();
          start_fold();
          wgmma_await<kCapped ? 0 : 1>();                                    // a cap calls functions: nothing runs meanwhile
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
        mix_all();
      } else {
#pragma unroll 1
        for (int tile = s.first_tile;; ++tile) {
          await_turn();
          if (tile > s.first_tile) mix_all();                                // the one before
          if (tile > s.last_tile) break;
          start_scores();
          give_turn();
          wgmma_await<0>();
          end_scores(tile);
          tile_weights(scores, tile_l, tile_m, factor);
          end_weights(tile);
        }
        give_turn();
      }
      const float* sinks = reinterpret_cast<const float*>(op.sinks.data);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (token[r] < 0) continue;
        const float norm = norm_of(m[r], l[r], factor, sinks ? sinks + head[r] : nullptr);
        if (out_tiles.data) {
          const int n_units = (op.n_heads * kDim + 63) / 64;
#pragma unroll
          for (int j = 0; j < kDim / 8; ++j)
            *reinterpret_cast<uint32_t*>(out_tiles.data + tile_place(token[r], head[r] * kDim + 8 * j + 2 * q, n_units, out_tiles.halves)) =
                pack<__nv_bfloat16>(__fmul_rn(total[4 * j + 2 * r], norm), __fmul_rn(total[4 * j + 2 * r + 1], norm));
        } else {
          float* out = reinterpret_cast<float*>(op.out.data + token[r] * op.out.stride) + head[r] * kDim + 2 * q;
#pragma unroll
          for (int j = 0; j < kDim / 8; ++j) *reinterpret_cast<float2*>(out + 8 * j) = {__fmul_rn(total[4 * j + 2 * r], norm), __fmul_rn(total[4 * j + 2 * r + 1], norm)};
        }
      }
    }
    if (group == 0) await_turn();                                            // takes the one that was given last
  }
#endif
}

// KV heads that a block takes one after the other: its tiles keep coming from one head to the next, where a new block would wait for its first ones. As many as leave about two
// rounds of blocks, the shorter ones last, and no more rounds than there are where all are as long as each other.
int heads_a_block(const PagedAttention& op, int n_blocks, const Launch& l) {
  const int n_pieces = n_blocks * op.n_kv_heads;
  const auto rounds = [&](int n) { return (n_pieces / n + l.n_sms - 1) / l.n_sms * n; };
  for (const int n : {4, 2})
    if (op.n_kv_heads % n == 0 && n_pieces * 8 >= 15 * n * l.n_sms && rounds(n) <= rounds(1)) return n;
  return 1;
}

template <class T, int kDim, bool kCapped>
void launch(const PagedAttention& op, Tiles tiles, const Launch& l) {
  const int tokens_a_block = kRows / (op.n_heads / op.n_kv_heads), n_blocks = int(op.q.rows + tokens_a_block - 1) / tokens_a_block;
  constexpr int kBytes = 1024 + kStages<T, kDim> * kKvBytes<kDim> + kQueryBytes<kDim> + kWeightBytes<kDim> + kSlotBytes<T, kDim> + kScaleBytes<T, kDim>;
  PageMaps maps{};
  if constexpr (!kIsFp8<T>) maps.are_there = map_plane(maps.of[0], op.kv, 0) && map_plane(maps.of[1], op.kv, 1);
  const auto kernel = many_rows_kernel<T, kDim, kCapped>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const int n_heads = heads_a_block(op, n_blocks, l);
  launch_kernel(kernel, n_blocks * (op.n_kv_heads / n_heads), kThreads, kBytes, l.stream, op, l.step, maps, tiles, n_blocks, n_heads);
}

}  // namespace

bool flash_many_rows_supports(const PagedAttention& op, const Launch& l) {
  const auto has_room = []<class T, int kDim>(T, std::integral_constant<int, kDim>) { return kHasRoom<T, kDim>; };
  return kHasSm90a && l.compute_capability == 90 && with_form(op, has_room);
}

void flash_many_rows(const PagedAttention& op, Tiles tiles, const Launch& l) {
  with_form(op, [&]<class T, int kDim>(T, std::integral_constant<int, kDim>) {
    if constexpr (kHasRoom<T, kDim>) op.softcap > 0 ? launch<T, kDim, true>(op, tiles, l) : launch<T, kDim, false>(op, tiles, l);
  });
}

}  // namespace ridge::cuda
