// One architecture of GGUF as a row of a table: names, metadata keys and what llama.cpp's converter changes in tensors. The rows are in dense.cpp, mixture.cpp and
// recurrent.cpp; who reads or writes a file walks them (gguf_names, gguf_config, gguf_weights, gguf_writer), and nobody else knows llama.cpp's spelling.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"

namespace ridge {

// Where the numbers of a GGUF tensor lie in Hugging Face's (layout.h says it in formulas). E: experts, F: their width, D: the model's.
enum class Change : uint8_t {
  none,
  q_heads, k_heads,                          // rows of a rotated head: j and j + d/2 become 2j and 2j + 1
  squeeze,                                   // [n, 1, k] -> [n, k]
  column,                                    // [n] -> [n, 1]
  groups,                                    // [d] -> [n_groups, d / n_groups]
  first_half, second_half,                   // [.., 2F, D] -> [.., F, D]
  transposed,                                // [E, F, D] -> [E, D, F]
  transposed_first_half, transposed_second_half,       // [E, D, 2F] -> [E, F, D]
  transposed_even, transposed_odd,           // the same with gate and up in turns; whole rows [E, 2F, D] where the file has them so (mxfp4)
  even, odd,                                 // [E, 2F] -> [E, F]
  k_b, v_b,                                  // MLA's kv_b [H (k + v), R] -> keys [H, R, k] and values [H, v, R]
  qkv_by_head,                               // rows [H, 3, d] -> [3, H, d]
  qkv_of_qkvz, z_of_qkvz,                    // Qwen3-Next's rows by key head -> q, k, v of all heads; z of all heads
  v_heads, v_heads_after_qk, conv_v_heads, v_heads_in_columns,     // Qwen3.5's value heads, grouped by key head -> one of each key head in turn
};

enum class Numbers : uint8_t { same, plus_one, minus_exp };          // what the converter does to each number

struct GgufName {
  std::string_view gguf;                     // "{}": the layer's number. With or without the suffix (".weight")
  std::string hf;                            // the same; a second "{}" is the index along the first dimension of a stack
  Change change = Change::none;
  Numbers numbers = Numbers::same;
  bool read_only = false;                    // an older spelling
};

enum class KeyKind : uint8_t { integer, number, boolean };

struct GgufKey {
  std::string_view gguf;                     // after "<architecture>."
  std::string_view hf;                       // names in config.json, "|" between them: the first one there is written, the first is read; empty: a constant
  KeyKind kind = KeyKind::integer;
  const char* otherwise = nullptr;           // JSON to write when config.json has none of them
};

// Metadata of one file: typed access to "<architecture>.<key>".
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(std::string(architecture) + ".") {}
  const GgufFile& file() const { return file_; }
  const GgufMetadata& metadata() const { return file_.metadata(); }
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  // A list counts as one value where all layers that have any agree; 0 stands for a layer without.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const { return metadata().string(full(key)); }
  // One value for each layer; a single value counts for all. Empty when the key is absent.
  std::vector<int64_t> per_layer(std::string_view key, int64_t n_layers) const;
  int64_t needed(std::string_view key, int64_t min, int64_t max) const;
  bool has_tensor(std::string_view name) const;

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// A metadata value to be written: string, bool, u32, f32, or a list of strings, i32 or f32.
struct GgufPair {
  std::string key;
  Json value;                                // a whole number becomes u32, a fraction f32; lists by their first element (numbers: i32)
};

class GgufPairs {
 public:
  explicit GgufPairs(std::string_view architecture) : prefix_(std::string(architecture) + ".") {}
  void put(std::string_view key, Json value);            // under "<architecture>."; replaces
  void put_general(std::string key, Json value);
  std::vector<GgufPair> take() { return std::move(pairs_); }

 private:
  std::string prefix_;
  std::vector<GgufPair> pairs_;
};

struct GgufArchitecture {
  std::string_view gguf;                     // general.architecture
  std::string_view model_type, class_name;   // config.json's model_type and architectures[0]
  std::vector<GgufName> names;               // found before the common ones
  std::vector<GgufKey> keys;                 // likewise
  const char* known = "{}";                  // what llama.cpp's loader knows by heart instead of reading it, as keys of config.json
  void (*read)(const GgufKeys& keys, Json& config) = nullptr;           // what no table says
  void (*write)(const Json& config, GgufPairs& pairs) = nullptr;
  bool (*applies)(const GgufKeys& keys) = nullptr;       // where several rows share `gguf`: whether a file is this one's
  bool (*suits)(const Json& config) = nullptr;           // where several rows share `model_type`: whether a configuration is this one's
  bool has_rope = true, has_heads = true;
  // What the converter multiplies row `row` of a tensor by (Falcon-H1 keeps its multipliers in the weights), and the keys that are 1 afterwards.
  float (*factor)(const Json& config, std::string_view hf_name, int64_t row) = nullptr;
  std::vector<std::string_view> folded = {};
};

std::vector<GgufArchitecture> dense_architectures();
std::vector<GgufArchitecture> mixture_architectures();
std::vector<GgufArchitecture> recurrent_architectures();

// A positive whole number of config.json under one of several names ("a|b"); Error naming the first when there is none.
int64_t needed_count(const Json& config, std::string_view names);
std::optional<int64_t> count_in(const Json& config, std::string_view names);
// The value under the first of the names that config.json has; null otherwise.
Json value_in(const Json& config, std::string_view names);
// Rotated share of a head, from whichever rope section there is.
double rotated_share(const Json& config);

}  // namespace ridge
