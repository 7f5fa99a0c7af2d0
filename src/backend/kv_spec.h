// How a layer asks for KV memory, and how an op finds it. A layer states a KvSpec; the cache (kv/) puts layers of one spec into a group, whose pages hold
// `page` positions of every layer in it; ops get a KvRef. What lies inside a plane of a page is the backend's own business: RopeStore writes it and
// PagedAttention reads it, everybody else copies whole pages.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/format.h"

namespace ridge {

enum class KvKind : uint8_t { attention, latent, recurrent };

struct KvPlane {
  int n_heads = 0, head_dim = 0;
  FormatId format = FormatId::f32;
  bool operator==(const KvPlane&) const = default;
};

struct KvSpec {
  KvKind kind = KvKind::attention;
  int window = 0;                            // positions a token sees, itself included; 0: all
  int sinks = 0;                             // first positions that are always seen
  std::array<KvPlane, 3> planes;             // attention: K, V
  bool operator==(const KvSpec&) const = default;
};

// Bytes of one position of one layer.
inline int64_t kv_bytes_per_token(const KvSpec& spec) {
  int64_t n = 0;
  for (const KvPlane& p : spec.planes) n += row_bytes(p.format, int64_t{p.n_heads} * p.head_dim);
  return n;
}

// Where one layer's planes lie: plane i of page p starts at base + p * page_bytes + offsets[i] and spans page_size positions.
struct KvRef {
  std::byte* base = nullptr;
  int64_t page_bytes = 0;
  std::array<int64_t, 3> offsets{};
  std::array<KvPlane, 3> planes;
  int group = 0;
  int page_size = 0;                         // a multiple of 16 that divides 64, so that 16 positions never straddle a page and a tile of 64 is whole pages

  constexpr std::byte* plane(int i, int32_t page) const { return base + page * page_bytes + offsets[i]; }
};

}  // namespace ridge
