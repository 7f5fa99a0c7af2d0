// GGUF, versions 2 and 3, memory-mapped. Layout (little-endian; a string is a u64 length and its bytes):
//
//   "GGUF"  u32 version  u64 n_tensors  u64 n_pairs
//   n_pairs   x  string key, u32 type, value           an array is: u32 element type, u64 count, the elements
//   n_tensors x  string name, u32 n_dims, u64 dims[n_dims] (innermost first), u32 type, u64 offset
//   zeros up to a multiple of general.alignment (32), then the tensors' bytes; offsets count from here
//
// Everything is checked when the file is opened; values are read out of the mapping when they are asked for, so opening costs one walk over the header.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "formats/format.h"

namespace ridge {

enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// One metadata value, still in the file's bytes. For arrays `type` is the element's and `n` their number.
struct GgufValue {
  GgufType type = GgufType::u8;
  bool is_array = false;
  uint64_t n = 1;
  std::span<const std::byte> bytes;
};

// Typed access: nothing when the key is absent; Error naming file and key when it has another type. Numbers convert between widths when the value fits.
class GgufMetadata {
 public:
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  std::optional<std::string> string(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;     // views into the mapping: valid while the GgufFile lives
  std::optional<std::vector<float>> floats(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;             // booleans count as 0 and 1
  std::optional<uint64_t> count(std::string_view key) const;                            // elements of an array
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  Json to_json(size_t max_array = 64) const;                                            // longer arrays become a sentence

 private:
  friend class GgufReader;
  const GgufValue* find(std::string_view key) const;
  std::string file_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

struct GgufTensor {
  std::string name;
  uint32_t type;                            // ggml's number
  std::string_view type_name;
  FormatId format;                          // unknown: listed, not readable
  std::vector<int64_t> shape;               // outermost first
  uint64_t bytes;
  const std::byte* data;
};

class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  const std::string& path() const { return file_.path(); }
  uint32_t version() const { return version_; }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

 private:
  friend class GgufReader;
  MappedFile file_;
  uint32_t version_ = 0;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
};

// ggml's numbers of tensor types.
struct GgufTensorType {
  uint32_t number;
  std::string_view name;
  int block_elems, block_bytes;
  FormatId format;
};
const GgufTensorType* find_gguf_type(uint32_t number);
std::optional<uint32_t> gguf_type_of(FormatId format);

}  // namespace ridge
