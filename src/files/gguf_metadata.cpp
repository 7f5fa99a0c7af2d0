// Metadata values of a GGUF file, read out of the mapping. The reader has already checked every length.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "files/gguf.h"

namespace ridge {
namespace {

template <class T>
T take(const std::byte*& at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  at += sizeof v;
  return v;
}

std::string_view load_text(const std::byte*& at) {
  const auto n = take<uint64_t>(at);
  const std::string_view s(reinterpret_cast<const char*>(at), n);
  at += n;
  return s;
}

// A number of any width as `use(value)`; false for strings and arrays.
template <class Use>
bool with_number(GgufType type, const std::byte*& at, Use use) {
  switch (type) {
    case GgufType::u8: use(take<uint8_t>(at)); return true;
    case GgufType::i8: use(take<int8_t>(at)); return true;
    case GgufType::u16: use(take<uint16_t>(at)); return true;
    case GgufType::i16: use(take<int16_t>(at)); return true;
    case GgufType::u32: use(take<uint32_t>(at)); return true;
    case GgufType::i32: use(take<int32_t>(at)); return true;
    case GgufType::u64: use(take<uint64_t>(at)); return true;
    case GgufType::i64: use(take<int64_t>(at)); return true;
    case GgufType::f32: use(take<float>(at)); return true;
    case GgufType::f64: use(take<double>(at)); return true;
    case GgufType::boolean: use(take<uint8_t>(at) != 0); return true;
    default: return false;
  }
}

template <class T>
bool fits_integer(T v) {
  if constexpr (std::is_floating_point_v<T>) return v >= -9.0e15 && v <= 9.0e15 && std::trunc(v) == v;
  else if constexpr (std::is_same_v<T, uint64_t>) return v <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  else return true;
}

Json to_json(GgufType type, const std::byte*& at, size_t max_array);

Json array_to_json(GgufType type, uint64_t n, const std::byte*& at, size_t max_array) {
  Json list = Json::array();
  for (uint64_t i = 0; i < n; ++i) {
    Json item = to_json(type, at, max_array);
    if (i < max_array) list.push_back(std::move(item));
  }
  if (n > max_array) return fmt::format("({} values)", n);
  return list;
}

Json to_json(GgufType type, const std::byte*& at, size_t max_array) {
  Json json;
  if (with_number(type, at, [&](auto v) { json = v; })) return json;
  if (type == GgufType::string) return utf8::replace_invalid(load_text(at));
  const auto inner = static_cast<GgufType>(take<uint32_t>(at));
  const auto n = take<uint64_t>(at);
  return array_to_json(inner, n, at, max_array);
}

}  // namespace

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

std::optional<std::string> GgufMetadata::string(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  if (v->is_array || v->type != GgufType::string) fail("{}: metadata '{}' is not a string", file_, key);
  const std::byte* at = v->bytes.data();
  return std::string(load_text(at));
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  const std::byte* at = v->bytes.data();
  int64_t result = 0;
  bool fits = false;
  if (!v->is_array) with_number(v->type, at, [&](auto n) { if ((fits = fits_integer(n))) result = static_cast<int64_t>(n); });
  if (!fits) fail("{}: metadata '{}' is not a whole number", file_, key);
  return result;
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  const std::byte* at = v->bytes.data();
  double result = 0;
  if (v->is_array || !with_number(v->type, at, [&](auto n) { result = static_cast<double>(n); })) fail("{}: metadata '{}' is not a number", file_, key);
  if (!std::isfinite(result)) fail("{}: metadata '{}' is {}", file_, key, result);
  return result;
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  if (v->is_array || v->type != GgufType::boolean) fail("{}: metadata '{}' is not true or false", file_, key);
  return v->bytes[0] != std::byte{0};
}

std::optional<std::vector<std::string_view>> GgufMetadata::strings(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  if (!v->is_array || v->type != GgufType::string) fail("{}: metadata '{}' is not a list of strings", file_, key);
  std::vector<std::string_view> list;
  list.reserve(v->n);
  const std::byte* at = v->bytes.data();
  for (uint64_t i = 0; i < v->n; ++i) list.push_back(load_text(at));
  return list;
}

std::optional<std::vector<float>> GgufMetadata::floats(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  if (!v->is_array || v->type == GgufType::string || v->type == GgufType::array) fail("{}: metadata '{}' is not a list of numbers", file_, key);
  std::vector<float> list;
  list.reserve(v->n);
  const std::byte* at = v->bytes.data();
  for (uint64_t i = 0; i < v->n; ++i) with_number(v->type, at, [&](auto n) { list.push_back(static_cast<float>(n)); });
  return list;
}

std::optional<std::vector<int64_t>> GgufMetadata::integers(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  if (!v->is_array || v->type == GgufType::string || v->type == GgufType::array) fail("{}: metadata '{}' is not a list of numbers", file_, key);
  std::vector<int64_t> list;
  list.reserve(v->n);
  const std::byte* at = v->bytes.data();
  for (uint64_t i = 0; i < v->n; ++i)
    with_number(v->type, at, [&](auto n) {
      if (!fits_integer(n)) fail("{}: metadata '{}' has the number {} at place {}, not a whole one", file_, key, n, i);
      list.push_back(static_cast<int64_t>(n));
    });
  return list;
}

std::optional<uint64_t> GgufMetadata::count(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  if (!v->is_array) fail("{}: metadata '{}' is not a list", file_, key);
  return v->n;
}

Json GgufMetadata::to_json(size_t max_array) const {
  // Keys are known to differ: appended without the search per key that an ordered object would do.
  Json::object_t object;
  auto& pairs = static_cast<Json::object_t::Container&>(object);
  for (const auto& [key, v] : values_) {
    const std::byte* at = v.bytes.data();
    if (v.is_array && v.n > max_array) pairs.emplace_back(key, fmt::format("({} values)", v.n));
    else pairs.emplace_back(key, v.is_array ? array_to_json(v.type, v.n, at, max_array) : ridge::to_json(v.type, at, max_array));
  }
  return object;
}

}  // namespace ridge
