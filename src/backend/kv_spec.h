// How a layer asks for KV memory, and how an op finds it. A layer states a KvSpec; the cache (kv/) puts layers of one spec into a group, whose pages hold
// `page` positions of every layer in it; ops get a KvRef. What lies inside a plane of a page is the backend's own business: RopeStore writes it and
// PagedAttention reads it, everybody else copies whole pages.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/format.h"

namespace ridge {

// attention  a position keeps what later queries read, for as long as the window says
// recurrent  the state at the start of a block of 64 positions (a plane with every = 64) and entries per position since: only the newest block is read
enum class KvKind : uint8_t { attention, recurrent };

inline constexpr int kMaxKvPlanes = 4;

struct KvPlane {
  int n_heads = 0, head_dim = 0;
  FormatId format = FormatId::f32;
  int every = 1;                             // positions that one entry stands for; an entry lies in the page of its last one (entry_place)
  bool operator==(const KvPlane&) const = default;
};

struct KvSpec {
  KvKind kind = KvKind::attention;
  int window = 0;                            // positions a token sees, itself included; 0: all
  int sinks = 0;                             // first positions that are always seen
  std::array<KvPlane, kMaxKvPlanes> planes;  // attention: K, V; where values are part of the keys (latent attention): K alone
  bool operator==(const KvSpec&) const = default;
};

// Bytes of one entry of a plane: its numbers, and in fp8_e4m3 an f32 for each head (formats/kv_fp8.h).
inline int64_t entry_bytes(const KvPlane& plane) {
  return row_bytes(plane.format, int64_t{plane.n_heads} * plane.head_dim) + (plane.format == FormatId::fp8_e4m3 ? 4 * plane.n_heads : 0);
}

// Bytes by which one more position of one layer grows the cache, before anything is given back.
inline int64_t kv_bytes_per_token(const KvSpec& spec) {
  int64_t n = 0;
  for (const KvPlane& p : spec.planes) n += entry_bytes(p) / p.every;
  return n;
}

// Where entry i of a plane lies: which page of the sequence, and which entry of that page. By its last position, at which it is written: the page of that one is
// never shared with another sequence.
struct EntryPlace { int64_t page; int slot; };
constexpr EntryPlace entry_place(int64_t i, int every, int page_size) {
  const int64_t last = (i + 1) * every - 1;
  return {last / page_size, static_cast<int>(last % page_size) / every};
}

// Where one layer's planes lie: plane i of page p starts at base + p * page_bytes + offsets[i] and spans page_size positions (page_size / every entries).
struct KvRef {
  std::byte* base = nullptr;
  int64_t page_bytes = 0;
  std::array<int64_t, kMaxKvPlanes> offsets{};
  std::array<KvPlane, kMaxKvPlanes> planes;
  int group = 0;
  int page_size = 0;                         // a multiple of 16 that divides 64, so that 16 positions never straddle a page and a tile of 64 is whole pages

  constexpr std::byte* plane(int i, int32_t page) const { return base + page * page_bytes + offsets[i]; }
  // fp8_e4m3, where a backend keeps codes and scales apart: f32 [n_heads][page_size] behind a page's codes.
  constexpr std::byte* scales(int i, int32_t page) const { return plane(i, page) + int64_t{page_size} * planes[i].n_heads * planes[i].head_dim; }
};

}  // namespace ridge
