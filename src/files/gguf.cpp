#include "files/gguf.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "files/tensor_table.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxTensors = 10'000'000, kMaxPairs = 10'000'000;
constexpr int kMaxNesting = 4;
constexpr uint32_t kMaxDims = 8;

// Bytes of a number type; 0 for strings and arrays.
uint64_t number_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8: case GgufType::i8: case GgufType::boolean: return 1;
    case GgufType::u16: case GgufType::i16: return 2;
    case GgufType::u32: case GgufType::i32: case GgufType::f32: return 4;
    case GgufType::u64: case GgufType::i64: case GgufType::f64: return 8;
    default: return 0;
  }
}

template <class T>
T load(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

std::string printable(std::string_view text) { return utf8::replace_invalid(text.substr(0, 80)); }

}  // namespace

// Walks the header once; every read is checked against the end of the file.
class GgufReader {
 public:
  explicit GgufReader(GgufFile& file) : file_(file), bytes_(file.file_.bytes()), path_(file.file_.path()) {}

  void read() {
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) fail("{}: this is not a GGUF file (it does not begin with 'GGUF')", path_);
    at_ = 4;
    file_.version_ = number<uint32_t>("the version");
    if (file_.version_ != 2 && file_.version_ != 3)
      fail("{}: GGUF version {} is not supported (2 and 3 are{})", path_, file_.version_, (file_.version_ & 0xffff) == 0 ? "; this one looks big-endian" : "");
    const auto n_tensors = number<uint64_t>("the number of tensors"), n_pairs = number<uint64_t>("the number of metadata pairs");
    // A tensor takes at least 32 bytes of header and a pair 13, so a lying count ends here and not in an allocation.
    if (n_tensors > kMaxTensors || n_tensors > bytes_.size() / 24 || n_pairs > kMaxPairs || n_pairs > bytes_.size() / 13)
      fail("{}: the header claims {} tensors and {} metadata pairs, more than a file of {} bytes can hold", path_, n_tensors, n_pairs, bytes_.size());
    read_metadata(n_pairs);
    read_tensors(n_tensors);
  }

 private:
  template <class T>
  T number(std::string_view what) {
    need(sizeof(T), what);
    const T v = load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return v;
  }

  void need(uint64_t n, std::string_view what) const {
    if (n > bytes_.size() - at_) fail("{}: the file ends at byte {} within {}; it is truncated or damaged, download it again", path_, bytes_.size(), what);
  }

  std::string_view text(std::string_view what) {
    const auto n = number<uint64_t>(what);
    need(n, what);
    const std::string_view s(reinterpret_cast<const char*>(bytes_.data() + at_), n);
    at_ += n;
    return s;
  }

  GgufType type(const std::string& key) {
    const auto t = number<uint32_t>("the type of '" + key + "'");
    if (t > static_cast<uint32_t>(GgufType::f64)) fail("{}: metadata '{}' has the unknown value type {}", path_, key, t);
    return static_cast<GgufType>(t);
  }

  // Moves past `n` values of a type.
  void skip(GgufType t, uint64_t n, const std::string& key, int depth) {
    const std::string what = "metadata '" + key + "'";
    if (const uint64_t size = number_bytes(t)) {
      if (n > (bytes_.size() - at_) / size) fail("{}: metadata '{}' claims {} values of {} bytes, more than the file has left", path_, key, n, size);
      at_ += n * size;
      return;
    }
    if (n > (bytes_.size() - at_) / 8) fail("{}: metadata '{}' claims {} values, more than the file has left", path_, key, n);
    for (uint64_t i = 0; i < n; ++i) {
      if (t == GgufType::string) {
        const auto length = number<uint64_t>(what);
        need(length, what);
        at_ += length;
      } else {
        if (depth >= kMaxNesting) fail("{}: metadata '{}' has arrays nested deeper than {} levels", path_, key, kMaxNesting);
        const GgufType inner = type(key);
        skip(inner, number<uint64_t>(what), key, depth + 1);
      }
    }
  }

  void read_metadata(uint64_t n_pairs) {
    GgufMetadata& metadata = file_.metadata_;
    metadata.file_ = path_;
    for (uint64_t i = 0; i < n_pairs; ++i) {
      const std::string key(text("a metadata key"));
      if (key.empty() || key.size() > 65535 || !utf8::is_valid(key)) fail("{}: metadata key {} ('{}') is not a name", path_, i, printable(key));
      GgufValue value{.type = type(key)};
      if (value.type == GgufType::array) {
        value.is_array = true;
        value.type = type(key);
        value.n = number<uint64_t>("metadata '" + key + "'");
      }
      const uint64_t begin = at_;
      skip(value.type, value.n, key, 1);
      value.bytes = bytes_.subspan(begin, at_ - begin);
      if (!metadata.values_.emplace(key, value).second) fail("{}: metadata key '{}' appears twice", path_, key);
    }
  }

  void read_tensors(uint64_t n_tensors) {
    uint64_t alignment = 32;
    if (const auto a = file_.metadata_.integer("general.alignment")) {
      if (*a <= 0 || *a > (1 << 20) || (*a & (*a - 1)) != 0) fail("{}: general.alignment is {}, not a power of two up to 1048576", path_, *a);
      alignment = static_cast<uint64_t>(*a);
    }
    std::vector<uint64_t> offsets;
    std::set<std::string_view> names;
    for (uint64_t i = 0; i < n_tensors; ++i) {
      GgufTensor t;
      const std::string_view name = text("a tensor's name");
      if (name.empty() || name.size() > 4096 || !utf8::is_valid(name)) fail("{}: the name of tensor {} ('{}') is not a name", path_, i, printable(name));
      if (!names.insert(name).second) fail("{}: tensor '{}' appears twice", path_, name);
      t.name = name;
      const auto n_dims = number<uint32_t>("tensor '" + t.name + "'");
      if (n_dims > kMaxDims) fail("{}: tensor '{}' has {} dimensions (at most {})", path_, t.name, n_dims, kMaxDims);
      for (uint32_t d = 0; d < n_dims; ++d) {
        const auto dim = number<uint64_t>("the dimensions of tensor '" + t.name + "'");
        if (dim > INT64_MAX) fail("{}: tensor '{}' has a dimension of {}", path_, t.name, dim);
        t.shape.insert(t.shape.begin(), static_cast<int64_t>(dim));
      }
      t.type = number<uint32_t>("the type of tensor '" + t.name + "'");
      offsets.push_back(number<uint64_t>("the offset of tensor '" + t.name + "'"));
      const GgufTensorType* type = find_gguf_type(t.type);
      t.type_name = type ? type->name : "unknown";
      t.format = type ? type->format : FormatId::unknown;
      t.bytes = 0;
      if (type) {
        const auto bytes = tensor_bytes(type->block_elems, type->block_bytes, t.shape);
        if (!bytes) fail("{}: tensor '{}' ({}) has dimensions that overflow or a row that is not a multiple of {}", path_, t.name, type->name, type->block_elems);
        t.bytes = *bytes;
      }
      file_.tensors_.push_back(std::move(t));
    }
    // A file of a vocabulary alone may end here, before the padding.
    const uint64_t data_begin = (at_ + alignment - 1) / alignment * alignment;
    const uint64_t data_bytes = data_begin <= bytes_.size() ? bytes_.size() - data_begin : 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      GgufTensor& t = file_.tensors_[i];
      if (offsets[i] % alignment != 0) fail("{}: tensor '{}' lies at offset {}, which is not a multiple of general.alignment = {}", path_, t.name, offsets[i], alignment);
      if (offsets[i] > data_bytes || t.bytes > data_bytes - offsets[i])
        fail("{}: tensor '{}' needs {} bytes at offset {}, but the file holds {} bytes of data; it is truncated or damaged, download it again", path_, t.name, t.bytes, offsets[i], data_bytes);
      t.data = bytes_.data() + std::min<uint64_t>(data_begin, bytes_.size()) + offsets[i];
    }
    refuse_overlaps();
  }

  void refuse_overlaps() const {
    std::vector<const GgufTensor*> by_place;
    for (const GgufTensor& t : file_.tensors_) by_place.push_back(&t);
    std::sort(by_place.begin(), by_place.end(), [](const GgufTensor* a, const GgufTensor* b) { return std::pair(a->data, a->bytes) < std::pair(b->data, b->bytes); });
    for (size_t i = 1; i < by_place.size(); ++i)
      if (by_place[i - 1]->data + by_place[i - 1]->bytes > by_place[i]->data) fail("{}: tensors '{}' and '{}' overlap", path_, by_place[i - 1]->name, by_place[i]->name);
  }

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t at_ = 0;
};

GgufFile::GgufFile(const std::string& path) : file_(path) { GgufReader(*this).read(); }

}  // namespace ridge
