#include "files/gguf/layout.h"

#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

using Shape = std::vector<int64_t>;
using RowMap = std::function<int64_t(int64_t)>;

int64_t product(const Shape& shape, size_t n) {
  int64_t p = 1;
  for (size_t i = 0; i < n; ++i) p *= shape[i];
  return p;
}

[[noreturn]] void refuse(const std::string& name, const Shape& shape, const std::string& why) { fail("tensor '{}' of shape [{}] {}", name, fmt::join(shape, ", "), why); }

void need_dims(const std::string& name, const Shape& shape, size_t n) {
  if (shape.size() != n) refuse(name, shape, fmt::format("should have {} dimensions", n));
}

int64_t halved(const std::string& name, const Shape& shape, size_t dim) {
  if (shape[dim] % 2 != 0) refuse(name, shape, "should be two of the same size in one");
  return shape[dim] / 2;
}

// Rows (of a vector: numbers) come from map(r); the shape stays.
GgufLayout moved_rows(const Shape& shape, RowMap map) {
  GgufLayout l{.gguf_shape = shape, .hf_shape = shape, .same_order = false, .whole_rows = shape.size() > 1};
  if (shape.size() > 1) l.place = [map](int64_t r, int64_t c) { return Place{map(r), c}; };
  else l.place = [map](int64_t, int64_t c) { return Place{0, map(c)}; };
  return l;
}

int64_t n_rows(const Shape& shape) { return shape.size() == 1 ? shape[0] : product(shape, shape.size() - 1); }

GgufLayout rotated_heads(const Shape& shape, int64_t n_heads, double share, const std::string& name) {
  const int64_t n = n_rows(shape);
  if (n % (2 * n_heads) != 0) fail("tensor '{}' has {} rows, which do not divide into {} heads", name, n, n_heads);
  const int64_t d = n / n_heads, rotated = static_cast<int64_t>(share * static_cast<double>(d)) / 2 * 2;
  return moved_rows(shape, [d, rotated](int64_t r) { return deinterleaved_row(r, d, rotated); });
}

// Value heads by key head, [n_k, n_v / n_k] -> [n_v / n_k, n_k], from row `first` on.
RowMap value_heads(const Json& config, int64_t n, int64_t first, const Shape& shape, const std::string& name) {
  const int64_t n_k = needed_count(config, "linear_num_key_heads"), n_v = needed_count(config, "linear_num_value_heads");
  if (n_v % n_k != 0 || first < 0 || first > n || (n - first) % n_v != 0) refuse(name, shape, fmt::format("does not divide into {} value heads of {} key heads", n_v, n_k));
  const int64_t d = (n - first) / n_v, per_k = n_v / n_k;
  return [=](int64_t r) {
    if (r < first) return r;
    const int64_t head = (r - first) / d, i = (r - first) % d;
    return first + (head % n_k * per_k + head / n_k) * d + i;
  };
}

int64_t query_and_key_rows(const Json& config) { return 2 * needed_count(config, "linear_num_key_heads") * needed_count(config, "linear_key_head_dim"); }

struct MlaShape {
  int64_t n_heads, k, v;
};
MlaShape mla_shape(const Json& config) { return {needed_count(config, "num_attention_heads"), needed_count(config, "qk_nope_head_dim"), needed_count(config, "v_head_dim")}; }

struct DeltaShape {
  int64_t n_k, k, v;                        // key heads; rows of q and of k, rows of v and of z, for each
};
DeltaShape delta_shape(const Json& config, const Shape& shape, const std::string& name) {
  const int64_t n_k = needed_count(config, "linear_num_key_heads"), n_v = needed_count(config, "linear_num_value_heads");
  const DeltaShape s{n_k, needed_count(config, "linear_key_head_dim"), n_v / n_k * needed_count(config, "linear_value_head_dim")};
  if (n_v % n_k != 0) refuse(name, shape, fmt::format("cannot have {} value heads for {} key heads", n_v, n_k));
  return s;
}

// Half of the middle dimension: [.., 2F, D]; `part` 0 or 1.
GgufLayout half_of_rows(const Shape& hf, int64_t part, const std::string& name) {
  if (hf.size() < 2) refuse(name, hf, "should be a matrix");
  GgufLayout l{.gguf_shape = hf, .hf_shape = hf, .same_order = false};
  const int64_t f = l.gguf_shape[hf.size() - 2] = halved(name, hf, hf.size() - 2);
  l.place = [f, part](int64_t r, int64_t c) { return Place{r / f * 2 * f + part * f + r % f, c}; };
  return l;
}

// [E, D, N] -> [E, n, D]: row i of a matrix is its column first + step i.
GgufLayout columns_as_rows(const Shape& hf, int64_t n, int64_t first, int64_t step) {
  GgufLayout l{.gguf_shape = {hf[0], n, hf[1]}, .hf_shape = hf, .same_order = false, .whole_rows = false};
  l.place = [n, d = hf[1], first, step](int64_t r, int64_t c) { return Place{r / n * d + c, first + r % n * step}; };
  return l;
}

GgufLayout every_other_number(const Shape& hf, int64_t first, const std::string& name) {
  GgufLayout l{.gguf_shape = hf, .hf_shape = hf, .same_order = false, .whole_rows = false};
  if (hf.empty()) refuse(name, hf, "should be a list");
  l.gguf_shape.back() = halved(name, hf, hf.size() - 1);
  l.place = [first](int64_t r, int64_t c) { return Place{r, 2 * c + first}; };
  return l;
}

GgufLayout mla_part(const Json& config, int64_t rank, bool keys) {
  const MlaShape s = mla_shape(config);
  GgufLayout l{.hf_shape = {s.n_heads * (s.k + s.v), rank}, .same_order = false, .whole_rows = !keys};
  if (keys) {
    l.gguf_shape = {s.n_heads, rank, s.k};
    l.place = [s, rank](int64_t r, int64_t c) { return Place{r / rank * (s.k + s.v) + c, r % rank}; };
  } else {
    l.gguf_shape = {s.n_heads, s.v, rank};
    l.place = [s](int64_t r, int64_t c) { return Place{r / s.v * (s.k + s.v) + s.k + r % s.v, c}; };
  }
  return l;
}

GgufLayout delta_part(const Json& config, const Shape& shape, bool qkv, const std::string& name) {
  const DeltaShape s = delta_shape(config, shape, name);
  const int64_t each = 2 * s.k + 2 * s.v, keys = s.n_k * s.k;
  GgufLayout l{.gguf_shape = {qkv ? 2 * keys + s.n_k * s.v : s.n_k * s.v, shape.back()}, .hf_shape = {s.n_k * each, shape.back()}, .same_order = false};
  if (qkv)
    l.place = [=](int64_t r, int64_t c) {
      if (r < keys) return Place{r / s.k * each + r % s.k, c};
      if (r < 2 * keys) return Place{(r - keys) / s.k * each + s.k + (r - keys) % s.k, c};
      return Place{(r - 2 * keys) / s.v * each + 2 * s.k + (r - 2 * keys) % s.v, c};
    };
  else
    l.place = [=](int64_t r, int64_t c) { return Place{r / s.v * each + 2 * s.k + s.v + r % s.v, c}; };
  return l;
}

GgufLayout reshaped(const Shape& gguf, const Shape& hf) { return {.gguf_shape = gguf, .hf_shape = hf}; }

void need_shape(const Shape& got, const Shape& expected, const std::string& name) {
  if (got != expected) refuse(name, got, fmt::format("should have the shape [{}] by the configuration", fmt::join(expected, ", ")));
}

// Changes that keep the shape, in either direction.
std::optional<GgufLayout> of_same_shape(Change change, const Shape& shape, const Json& config, const std::string& name) {
  switch (change) {
    case Change::none: return reshaped(shape, shape);
    case Change::q_heads: return rotated_heads(shape, needed_count(config, "num_attention_heads"), rotated_share(config), name);
    case Change::k_heads: return rotated_heads(shape, needed_count(config, "num_key_value_heads|num_attention_heads"), rotated_share(config), name);
    case Change::qkv_by_head: {
      const int64_t n_heads = needed_count(config, "num_attention_heads"), n = n_rows(shape);
      if (n % (3 * n_heads) != 0) refuse(name, shape, fmt::format("does not divide into q, k and v of {} heads", n_heads));
      const int64_t d = n / 3 / n_heads;
      return moved_rows(shape, [n_heads, d](int64_t r) { return (r / d % n_heads * 3 + r / d / n_heads) * d + r % d; });
    }
    case Change::v_heads: return moved_rows(shape, value_heads(config, n_rows(shape), 0, shape, name));
    case Change::v_heads_after_qk: return moved_rows(shape, value_heads(config, n_rows(shape), query_and_key_rows(config), shape, name));
    case Change::v_heads_in_columns: {
      need_dims(name, shape, 2);
      const RowMap map = value_heads(config, shape[1], 0, shape, name);
      return GgufLayout{.gguf_shape = shape, .hf_shape = shape, .same_order = false, .whole_rows = false, .place = [map](int64_t r, int64_t c) { return Place{r, map(c)}; }};
    }
    default: return std::nullopt;
  }
}

}  // namespace

GgufLayout layout_from_hf(Change change, const Shape& hf, const Json& config, const std::string& name) {
  if (auto l = of_same_shape(change, hf, config, name)) return *std::move(l);
  switch (change) {
    case Change::squeeze: need_dims(name, hf, 3); return reshaped({hf[0] * hf[1], hf[2]}, hf);
    case Change::column: need_dims(name, hf, 1); return reshaped({hf[0], 1}, hf);
    case Change::groups: {
      need_dims(name, hf, 1);
      const int64_t n = needed_count(config, "n_groups|mamba_n_groups");
      if (hf[0] % n != 0) refuse(name, hf, fmt::format("does not divide into {} groups", n));
      return reshaped({n, hf[0] / n}, hf);
    }
    case Change::first_half: return half_of_rows(hf, 0, name);
    case Change::second_half: return half_of_rows(hf, 1, name);
    case Change::transposed: need_dims(name, hf, 3); return columns_as_rows(hf, hf[2], 0, 1);
    case Change::transposed_first_half: need_dims(name, hf, 3); return columns_as_rows(hf, halved(name, hf, 2), 0, 1);
    case Change::transposed_second_half: need_dims(name, hf, 3); return columns_as_rows(hf, halved(name, hf, 2), hf[2] / 2, 1);
    case Change::transposed_even: need_dims(name, hf, 3); return columns_as_rows(hf, halved(name, hf, 2), 0, 2);
    case Change::transposed_odd: need_dims(name, hf, 3); return columns_as_rows(hf, halved(name, hf, 2), 1, 2);
    case Change::even: return every_other_number(hf, 0, name);
    case Change::odd: return every_other_number(hf, 1, name);
    case Change::k_b: case Change::v_b: {
      need_dims(name, hf, 2);
      GgufLayout l = mla_part(config, hf[1], change == Change::k_b);
      need_shape(hf, l.hf_shape, name);
      return l;
    }
    case Change::qkv_of_qkvz: case Change::z_of_qkvz: {
      need_dims(name, hf, 2);
      GgufLayout l = delta_part(config, hf, change == Change::qkv_of_qkvz, name);
      need_shape(hf, l.hf_shape, name);
      return l;
    }
    case Change::conv_v_heads: {
      need_dims(name, hf, 3);
      GgufLayout l = layout_from_hf(Change::v_heads_after_qk, {hf[0] * hf[1], hf[2]}, config, name);
      l.hf_shape = hf;
      return l;
    }
    default: fail("tensor '{}' cannot be changed so", name);
  }
}

GgufLayout layout_from_gguf(Change change, const Shape& gguf, const Json& config, const std::string& name) {
  if (auto l = of_same_shape(change, gguf, config, name)) return *std::move(l);
  const auto from_hf = [&](const Shape& hf) {
    GgufLayout l = layout_from_hf(change, hf, config, name);
    need_shape(gguf, l.gguf_shape, name);
    return l;
  };
  const auto doubled = [&](size_t dim) {
    Shape hf = gguf;
    if (__builtin_mul_overflow(hf[dim], int64_t{2}, &hf[dim])) refuse(name, gguf, "is too large");
    return hf;
  };
  switch (change) {
    case Change::squeeze: need_dims(name, gguf, 2); return from_hf({gguf[0], 1, gguf[1]});
    case Change::column: case Change::groups: return reshaped(gguf, {product(gguf, gguf.size())});
    case Change::first_half: case Change::second_half:
      if (gguf.size() < 2) refuse(name, gguf, "should be a matrix");
      return from_hf(doubled(gguf.size() - 2));
    case Change::transposed: need_dims(name, gguf, 3); return from_hf({gguf[0], gguf[2], gguf[1]});
    case Change::transposed_first_half: case Change::transposed_second_half: case Change::transposed_even: case Change::transposed_odd: {
      need_dims(name, gguf, 3);
      const Shape hf = doubled(1);
      return from_hf({hf[0], hf[2], hf[1]});
    }
    case Change::even: case Change::odd:
      if (gguf.empty()) refuse(name, gguf, "should be a list");
      return from_hf(doubled(gguf.size() - 1));
    case Change::k_b: case Change::v_b: {
      need_dims(name, gguf, 3);
      GgufLayout l = mla_part(config, change == Change::k_b ? gguf[1] : gguf[2], change == Change::k_b);
      need_shape(gguf, l.gguf_shape, name);
      return l;
    }
    case Change::qkv_of_qkvz: case Change::z_of_qkvz: {
      need_dims(name, gguf, 2);
      GgufLayout l = delta_part(config, gguf, change == Change::qkv_of_qkvz, name);
      need_shape(gguf, l.gguf_shape, name);
      return l;
    }
    case Change::conv_v_heads: need_dims(name, gguf, 2); return from_hf({gguf[0], 1, gguf[1]});
    default: fail("tensor '{}' cannot be changed so", name);
  }
}

float to_gguf(Numbers numbers, float x) { return numbers == Numbers::plus_one ? x + 1.0f : numbers == Numbers::minus_exp ? -std::exp(x) : x; }
float from_gguf(Numbers numbers, float x) { return numbers == Numbers::plus_one ? x - 1.0f : numbers == Numbers::minus_exp ? std::log(-x) : x; }

}  // namespace ridge
