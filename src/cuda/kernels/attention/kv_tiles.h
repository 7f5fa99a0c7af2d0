// Tiles of 128 positions of K and of V on their way from a sequence's pages into a ring in shared memory, as the tensor cores want them (lib/wgmma.h): by a warpgroup of its
// own, for the warpgroups that multiply (attention/many_rows.cu). Positions that nobody sees become zeros, since what lies in a page there may be no numbers.
//   16 bits   a tile that is seen as a whole comes by the tensor copy engine, one that is seen in part chunk by chunk
//   fp8       codes and scales come as they lie in their pages, a few tiles ahead; the warpgroup widens them into the ring and puts a tile's scales beside it
#pragma once
#include "cuda/lib/flash_fp8.h"
#include "cuda/lib/tensor_map.h"
#include "cuda/lib/wgmma.h"

namespace ridge::cuda {

constexpr int kPanelBytes = kFlashTile * 128, kCopierBarrier = 3;
template <int kDim>
constexpr int kKvBytes = kDim / 64 * kPanelBytes;                           // [panel of 64 dimensions][position][128 bytes, swizzled]
constexpr int kScaleStride = kFlashTile + 4;                                 // scales of a tile [position], those of V as given, and then what is owed to o
constexpr int kCodeSlots = 3;
template <int kDim>
constexpr int kCodeBytes = kFlashTile * (kDim + 4);                         // a slot: codes [position][kDim] and then scales [position]

// Rows [first, last) of one sequence, and the tiles they see.
struct Segment {
  int first, last, seq, first_position, last_position, first_tile, last_tile, first_seen;
  __device__ bool sees(int position) const { return position >= first_seen && position <= last_position; }
  __device__ bool sees_whole(int tile) const { return tile * kFlashTile >= first_seen && tile * kFlashTile + kFlashTile - 1 <= last_position; }
  __device__ bool sees_some(int position, int n) const { return position + n > first_seen && position <= last_position; }
};

// Where a KV head's rows of a sequence lie. Lane i looks up the tile's i-th page, 0 where nothing is seen.
struct HeadPages {
  const KvRef& kv;
  const int32_t* pages;
  int kv_head;
  __device__ int n_a_tile() const { return kFlashTile / kv.page_size; }
  __device__ int32_t of(const Segment& s, int tile, int lane) const {
    return tile <= s.last_tile && lane < n_a_tile() && s.sees_some(tile * kFlashTile + lane * kv.page_size, kv.page_size) ? pages[tile * n_a_tile() + lane] : 0;
  }
};

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

// A tile of which all positions are seen, by one warp: all that its pages hold. The others go on without waiting: a warp that fills nothing may look at a stage when it has been left twice, and then wait for ever.
template <int kDim, int kDepth>
__device__ void copy_whole_tile(Ring<kDepth>& ring, const PageMaps& maps, const HeadPages& head, int32_t page, int lane, bool copies) {
  const int page_size = head.kv.page_size;
  for (int plane = 0; plane < 2; ++plane) {
    if (copies) {
      ring.await_empty();
      Barrier* const full = &ring.full[ring.stage];
      if (lane == 0) arrive_expecting(full, kKvBytes<kDim>);
#pragma unroll 1
      for (int i = 0; i < head.n_a_tile(); ++i) {
        const int32_t from = __shfl_sync(0xffffffffu, page, i);
        std::byte* const to = ring.tiles + ring.stage * kKvBytes<kDim> + i * page_size * 128;
        if (lane == 0) {
#pragma unroll
          for (int panel = 0; panel < kDim / 64; ++panel) copy_box(to + panel * kPanelBytes, maps.of[plane], panel * 64, head.kv_head * page_size, from, full);
        }
      }
    }
    ring.advance();
  }
}

// A tile of which some positions are not seen, by all warps, which meet where the one for whole tiles has come to. Both planes are on their way before one is waited for, unless the ring has room for no more than them: there V waits for
// those who cannot go on without K.
template <int kDim, int kDepth>
__device__ void copy_part_of_tile(Ring<kDepth>& ring, const Segment& s, int tile, const HeadPages& head, int32_t page) {
  const KvRef& kv = head.kv;
  constexpr int kChunks = kDim / 8, kRowsAtOnce = 128 / kChunks;
  const int thread = threadIdx.x % 128, chunk = thread % kChunks, row = thread / kChunks, first = tile * kFlashTile, place = swizzled(row, chunk % 8);
  Barrier* full[2];
  const auto finish = [&]<int kPending>(Barrier* full, std::integral_constant<int, kPending>) {
    await_chunks<kPending>();
    fence_for_wgmma();
    sync_threads_of(kCopierBarrier, 128);
    if (thread == 0) arrive(full);
  };
  sync_threads_of(kCopierBarrier, 128);
  for (int plane = 0; plane < 2; ++plane) {
    ring.await_empty();
    full[plane] = &ring.full[ring.stage];
    std::byte* const to = ring.tiles + ring.stage * kKvBytes<kDim> + chunk / 8 * kPanelBytes;
    const std::byte* const from_head = kv.base + kv.offsets[plane] + ((int64_t{head.kv_head} * kv.page_size + row) * kDim + chunk * 8) * 2;
#pragma unroll 1
    for (int i = 0; i < kFlashTile / 16; ++i) {
      const int32_t of_run = __shfl_sync(0xffffffffu, page, i * 16 / kv.page_size);
      const std::byte* const from = from_head + of_run * kv.page_bytes + ((first + i * 16) & (kv.page_size - 1)) * (kDim * 2);
#pragma unroll
      for (int j = 0; j < 16 / kRowsAtOnce; ++j) {
        const int position = first + i * 16 + j * kRowsAtOnce + row;
        copy_chunk(to + (i * 16 + j * kRowsAtOnce) * 128 + (place ^ (j * kRowsAtOnce % 8 << 4)), from + j * kRowsAtOnce * (kDim * 2), s.sees(position));
      }
    }
    commit_chunks();
    ring.advance();
    if constexpr (kDepth == 2) finish(full[plane], std::integral_constant<int, 0>{});
  }
  if constexpr (kDepth > 2) {
    finish(full[0], std::integral_constant<int, 1>{});
    finish(full[1], std::integral_constant<int, 0>{});
  }
}

// All tiles of a segment, by a warpgroup.
template <int kDim, int kDepth>
__device__ void copy_tiles(Ring<kDepth>& ring, const Segment& s, const PageMaps& maps, const HeadPages& head) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
  int32_t next_page = head.of(s, s.first_tile, lane);                        // one tile ahead: the copies never wait for the table
  for (int tile = s.first_tile; tile <= s.last_tile; ++tile) {
    const int32_t page = next_page;
    next_page = head.of(s, tile + 1, lane);
    if (maps.are_there && s.sees_whole(tile)) copy_whole_tile<kDim>(ring, maps, head, page, lane, thread < 32);
    else copy_part_of_tile<kDim>(ring, s, tile, head, page);
  }
}

// Slots of codes and scales that the copies run ahead through, and the barriers that they report to.
struct CodeSlots {
  std::byte* slots;
  Barrier* full;
  int slot = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++slot == kCodeSlots) slot = 0, phase ^= 1;
  }
};

// Codes and scales of a plane's tile into a slot, by one warp.
template <int kDim>
__device__ void ask_for_codes(const CodeSlots& at, const Segment& s, int tile, int plane, const HeadPages& head, int32_t page, int lane) {
  const int page_size = head.kv.page_size, first = tile * kFlashTile;
  const int n_seen = __popc(__ballot_sync(0xffffffffu, lane < head.n_a_tile() && s.sees_some(first + lane * page_size, page_size)));
  Barrier* const full = &at.full[at.slot];
  if (lane == 0) arrive_expecting(full, n_seen * page_size * (kDim + 4));
  std::byte* const codes = at.slots + at.slot * kCodeBytes<kDim>;
#pragma unroll 1
  for (int i = 0; i < head.n_a_tile(); ++i) {
    const int32_t from = __shfl_sync(0xffffffffu, page, i);
    if (lane == 0 && s.sees_some(first + i * page_size, page_size)) {
      copy_bulk(codes + i * page_size * kDim, head.kv.plane(plane, from) + int64_t{head.kv_head} * page_size * kDim, page_size * kDim, full);
      copy_bulk(codes + kFlashTile * kDim + i * page_size * 4, head.kv.scales(plane, from) + int64_t{head.kv_head} * page_size * 4, page_size * 4, full);
    }
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

// A slot's codes into a tile of the ring, by a warpgroup. Eight neighbouring lanes have four chunks of a row and four of the next, of the other panel where there are two:
// neither their loads nor their stores meet in a bank.
template <bool kKeys, int kDim>
__device__ void widen_tile(std::byte* to, const std::byte* codes, const Segment& s, int tile) {
  constexpr int kTurns = kDim / 16, kRows = kFlashTile / kTurns, kAtOnce = 4;
  const int thread = threadIdx.x % 128, lane = thread % 32, chunk = lane % 4, panel = kDim == 128 ? (lane / 4 ^ lane / 8) & 1 : 0;
  const int row = thread / 32 * (kRows / 4) + (kDim == 128 ? lane / 16 * 2 + lane / 4 % 2 : lane / 4);
  const bool whole = s.sees_whole(tile);
  codes += row * kDim + panel * 64 + chunk * 16;
  std::byte* const low = to + panel * kPanelBytes + swizzled(row, 2 * chunk);
  std::byte* const high = to + panel * kPanelBytes + swizzled(row, 2 * chunk + 1);
#pragma unroll 1
  for (int turn = 0; turn < kTurns; turn += kAtOnce) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) v[i] = *reinterpret_cast<const uint4*>(codes + (turn + i) * kRows * kDim);
    if (!whole) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (!s.sees(tile * kFlashTile + (turn + i) * kRows + row)) v[i] = {0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      uint4 first, second;
      widen_chunk<kKeys>(first, second, v[i]);
      *reinterpret_cast<uint4*>(low + (turn + i) * kRows * 128) = first;
      *reinterpret_cast<uint4*>(high + (turn + i) * kRows * 128) = second;
    }
  }
}

// A slot's scales to where those who multiply read them, by one warp, four positions a lane.
template <bool kKeys>
__device__ void put_scales(float* to, const float* from, const Segment& s, int tile, int lane) {
  const int four = tile * kFlashTile + 4 * lane;
  float4 scale = reinterpret_cast<const float4*>(from)[lane];
  scale = {s.sees(four) ? scale.x : 0, s.sees(four + 1) ? scale.y : 0, s.sees(four + 2) ? scale.z : 0, s.sees(four + 3) ? scale.w : 0};
  if constexpr (!kKeys) {
    const ValueScaling scaling = value_scaling(scale);
    scale = scaled(scale, scaling.given);
    if (lane == 0) to[kFlashTile] = scaling.owed;
  }
  reinterpret_cast<float4*>(to)[lane] = scale;
}

// All tiles of a segment, by a warpgroup; its first warp asks for codes.
template <int kDim, int kDepth>
__device__ void widen_tiles(Ring<kDepth>& ring, CodeSlots& codes, float* scales, const Segment& s, const HeadPages& head) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
  CodeSlots asked = codes;
  int asked_tile = s.first_tile, asked_plane = 0;
  int32_t page = head.of(s, asked_tile, lane), next_page = head.of(s, asked_tile + 1, lane);
  const auto ask = [&] {
    if (thread >= 32 || asked_tile > s.last_tile) return;
    ask_for_codes<kDim>(asked, s, asked_tile, asked_plane, head, page, lane);
    asked.advance();
    if (asked_plane == 1) page = next_page, next_page = head.of(s, ++asked_tile + 1, lane);
    asked_plane ^= 1;
  };
  const auto bring = [&]<bool kKeys>(std::bool_constant<kKeys>, int tile) {
    const std::byte* const from = codes.slots + codes.slot * kCodeBytes<kDim>;
    await(&codes.full[codes.slot], codes.phase);
    ring.await_empty();
    if (thread < 32) put_scales<kKeys>(scales + ring.stage * kScaleStride, reinterpret_cast<const float*>(from + kFlashTile * kDim), s, tile, lane);
    widen_tile<kKeys, kDim>(ring.tiles + ring.stage * kKvBytes<kDim>, from, s, tile);
    fence_for_wgmma();
    __syncwarp();
    arrive_as_warp(&ring.full[ring.stage], lane);
    ring.advance();
    codes.advance();
    sync_threads_of(kCopierBarrier, 128);                                    // everybody has read the slot
    ask();
  };
  for (int i = 0; i < kCodeSlots; ++i) ask();
#pragma unroll 1
  for (int tile = s.first_tile; tile <= s.last_tile; ++tile) {
    bring(std::true_type{}, tile);
    bring(std::false_type{}, tile);
  }
}

#endif

}  // namespace ridge::cuda
