// What the projections of a step become on the way into attention of single tokens (kernels/attention/decode.cu): heads of q as operands, new keys and values as rows of a tile,
// and those of the row's own token in their page. Norms and rotation are those of lib/rotate.h. A warp takes an item of a tile: heads of q, then new keys, then new values.
#pragma once
#include "cuda/lib/flash_fp8.h"
#include "cuda/lib/rotate.h"

namespace ridge::cuda {

// Where they go; the scales in fp8.
struct TileRows {
  std::byte *queries, *keys, *values;                                       // queries: rows of 2 kDim + 16 bytes
  float *key_scales, *value_scales;
};

template <class T, int kDim>
struct DecodeItems {
  static constexpr int kOwn = kDim / 32, kHalf = kOwn / 2, kRowBytes = kRowBytesOf<T, kDim>;
  const PagedAttention& op;
  const Rotation& rotation;
  const int32_t* pages;
  Seen seen;
  int row, first_row, first_new;                                            // first_new: the position of the sequence's first row in this step
  int kv_head, share, page_bits, lane;

  struct Of {                                                               // a tile
    int start, from, n_new, n_q;                                            // from: the first new position
    __device__ int n() const { return n_q + 2 * n_new; }
    __device__ bool is_q(int item) const { return item < n_q; }
    __device__ bool is_v(int item) const { return item >= n_q + n_new; }
    __device__ int position(int item) const { return from + item - n_q - (is_v(item) ? n_new : 0); }
  };
  __device__ Of of(int tile, bool with_queries) const {
    const int start = tile * kFlashTile, from = max(max(first_new, start), seen.from);
    return {start, from, max(min(seen.to, start + kFlashTile) - from, 0), with_queries ? share : 0};
  }

  // An item that is there: all that does not wait for the projections, then they and the angles, then what becomes of them.
  struct Item {
    const float *values, *angles;
    float value[kOwn], weight[kOwn], cosine[kOwn], sine[kOwn];              // rotated whole and by halves: kHalf angles
    int32_t page;                                                           // -1: not to be stored
  };
  __device__ void prepare(Item& item, const Of& items, int nth) const {
    const bool is_q = items.is_q(nth), is_v = items.is_v(nth);
    const Tensor& x = is_q ? op.q : is_v ? rotation.v : rotation.k;
    const NormOfHeads& norm = is_q ? rotation.q_norm : rotation.k_norm;
    const int head = is_q ? kv_head * share + nth : kv_head, position = items.position(nth), token = is_q ? row : first_row + position - first_new;
    const float* const weights = norm.weight && !is_v ? norm.weight + head * norm.head_stride + lane : nullptr;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) item.weight[i] = weights ? weights[32 * i] : 0.0f;
    item.values = reinterpret_cast<const float*>(x.data + token * x.stride) + head * kDim + lane;
    item.angles = rotation.angles.data && !is_v ? reinterpret_cast<const float*>(rotation.angles.data + token * rotation.angles.stride) : nullptr;
    item.page = !is_q && token == row ? pages[position >> page_bits] : -1;
  }
  __device__ void load(Item& item) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) item.value[i] = __ldcg(item.values + 32 * i);
    if (!item.angles) return;
    const float* const angles = item.angles;
    if (turns_whole()) {
#pragma unroll
      for (int i = 0; i < kHalf; ++i) item.cosine[i] = __ldcg(angles + lane + 32 * i), item.sine[i] = __ldcg(angles + kDim / 2 + lane + 32 * i);
    } else {
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (const int d = lane + 32 * i; d < rotation.n_rot) {
          const int angle = turn_of(d, rotation.n_rot, rotation.style).angle;
          item.cosine[i] = __ldcg(angles + angle), item.sine[i] = __ldcg(angles + rotation.n_rot / 2 + angle);
        }
    }
  }
  // `swap`: kDim floats of the warp's own.
  __device__ void finish(Item& item, const Of& items, int nth, const TileRows& to, float* swap) const {
    const bool is_q = items.is_q(nth), is_v = items.is_v(nth);
    const NormOfHeads& norm = is_q ? rotation.q_norm : rotation.k_norm;
    if (norm.weight && !is_v) norm_head(item.value, item.weight, kDim, norm);
    if (rotation.angles.data && !is_v) rotate(item, swap);
    if (is_q) return put_query(item, to.queries + nth * (2 * kDim + 16));
    const int p = items.position(nth), r = p - items.start, plane = is_v ? 1 : 0;
    std::byte* const tile = is_v ? to.values : to.keys;
    const int64_t entry = (int64_t{kv_head} << page_bits) + (p & (op.kv.page_size - 1));
    std::byte* const kept = item.page >= 0 ? op.kv.plane(plane, item.page) + entry * kRowBytes : nullptr;
    if constexpr (kIsFp8<T>) {
      const KvFp8Scale scale = fp8_scale_of(item.value);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int d = lane + 32 * i;
        const uint8_t code = fp8_code(item.value[i], scale);
        reinterpret_cast<uint8_t*>(tile)[fp8_place<kDim>(r, d / 16) + d % 16] = code;
        if (kept) reinterpret_cast<uint8_t*>(kept)[d] = code;
      }
      if (lane > 0) return;
      (is_v ? to.value_scales : to.key_scales)[r] = scale.scale;
      if (kept) reinterpret_cast<float*>(op.kv.scales(plane, item.page))[entry] = scale.scale;
    } else {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int d = lane + 32 * i;
        const T v = rounded<T>(item.value[i]);
        *reinterpret_cast<T*>(tile + r * kRowBytes + (((d / 8) ^ (r & 7)) << 4) + d % 8 * 2) = v;
        if (kept) reinterpret_cast<T*>(kept)[d] = v;
      }
    }
  }

 private:
  // By halves of all its numbers: then partners lie in one lane.
  __device__ bool turns_whole() const { return rotation.style == RopeStyle::half && rotation.n_rot == kDim; }
  __device__ void rotate(Item& item, float* swap) const {
    if (turns_whole()) {
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        const float a = item.value[i], b = item.value[i + kHalf];
        item.value[i] = turned(a, b, item.cosine[i], item.sine[i], true);
        item.value[i + kHalf] = turned(b, a, item.cosine[i], item.sine[i], false);
      }
      return;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) swap[lane + 32 * i] = item.value[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (const int d = lane + 32 * i; d < rotation.n_rot) {
        const Turn turn = turn_of(d, rotation.n_rot, rotation.style);
        item.value[i] = turned(item.value[i], swap[turn.partner], item.cosine[i], item.sine[i], turn.first);
      }
  }
  __device__ void put_query(const Item& item, std::byte* to) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int d = lane + 32 * i;
      if constexpr (kIsFp8<T>) reinterpret_cast<uint16_t*>(to)[fp8_query_place(d)] = uint16_t(pack_query(item.value[i], 0));
      else reinterpret_cast<T*>(to)[d] = rounded<T>(item.value[i]);
    }
  }
};

}  // namespace ridge::cuda
