#include "files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "files/quant_config.h"
#include "files/tensor_table.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using HeaderJson = nlohmann::json;                        // sorted: a lookup per key stays cheap with 100000 tensors

constexpr uint64_t kMaxHeader = 100'000'000;              // the limit of the reference implementation
constexpr size_t kMostDims = 16;

struct Dtype {
  std::string_view name;
  FormatId format;
};
constexpr Dtype kDtypes[] = {{"F64", FormatId::f64}, {"F32", FormatId::f32},      {"F16", FormatId::f16},         {"BF16", FormatId::bf16},       {"I64", FormatId::i64},
                             {"I32", FormatId::i32}, {"I16", FormatId::i16},      {"I8", FormatId::i8},           {"U64", FormatId::u64},         {"U32", FormatId::u32},
                             {"U16", FormatId::u16}, {"U8", FormatId::u8},        {"BOOL", FormatId::boolean},    {"F8_E4M3", FormatId::fp8_e4m3}, {"F8_E5M2", FormatId::fp8_e5m2},
                             {"F8_E8M0", FormatId::u8}};

// Parses JSON of at most `max_depth` levels and refuses an object that has a key twice (which JSON allows and a lying file uses).
HeaderJson parse_strict(std::string_view text, const std::string& file, int max_depth) {
  std::vector<std::set<std::string, std::less<>>> keys;
  const auto callback = [&](int depth, HeaderJson::parse_event_t event, HeaderJson& value) {
    if (event == HeaderJson::parse_event_t::object_start || event == HeaderJson::parse_event_t::array_start) {
      if (depth >= max_depth) fail("{}: the JSON header is nested deeper than {} levels", file, max_depth);
      keys.resize(static_cast<size_t>(depth) + 2);
      keys.back().clear();
    } else if (event == HeaderJson::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys[static_cast<size_t>(depth)].insert(key).second) fail("{}: the key '{}' appears twice in the JSON header", file, key);
    }
    return true;
  };
  try {
    return HeaderJson::parse(text, callback);
  } catch (const HeaderJson::exception& e) {
    fail("{}: the header is not valid JSON: {}", file, e.what());
  }
}

struct Span {
  uint64_t begin, end;
  std::string name;
};

uint64_t unsigned_number(const HeaderJson& v, const std::string& file, const std::string& tensor, std::string_view what) {
  if (!v.is_number_unsigned()) fail("{}: tensor '{}': {} is {}, not a whole number of at most 64 bits", file, tensor, what, v.dump(-1, ' ', true, HeaderJson::error_handler_t::replace).substr(0, 40));
  return v.get<uint64_t>();
}

TensorInfo read_entry(const std::string& file, const std::string& name, const HeaderJson& entry, uint64_t data_bytes, Span& span) {
  if (!entry.is_object()) fail("{}: the entry of tensor '{}' is not a JSON object", file, name);
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key)) fail("{}: tensor '{}' has no '{}'", file, name, key);
  const HeaderJson &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!dtype.is_string()) fail("{}: tensor '{}': dtype is not a string", file, name);
  const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& d) { return d.name == dtype.get_ref<const std::string&>(); });
  if (known == std::end(kDtypes)) fail("{}: tensor '{}' has dtype '{}', which this version cannot read", file, name, dtype.get<std::string>());
  if (!shape.is_array() || shape.size() > kMostDims) fail("{}: tensor '{}': shape is not a list of at most {} numbers", file, name, kMostDims);
  TensorInfo info{.name = name, .stored_name = name, .format = known->format, .shape = {}, .bytes = 0, .file = file};
  for (const auto& dim : shape) {
    const uint64_t n = unsigned_number(dim, file, name, "a dimension");
    if (n > INT64_MAX) fail("{}: tensor '{}' has a dimension of {}", file, name, n);
    info.shape.push_back(static_cast<int64_t>(n));
  }
  const auto expected = tensor_bytes(1, format(info.format).block_bytes, info.shape);
  if (!expected) fail("{}: tensor '{}': shape {} is larger than any file", file, name, shape.dump());
  if (!offsets.is_array() || offsets.size() != 2) fail("{}: tensor '{}': data_offsets is not [begin, end]", file, name);
  span = {unsigned_number(offsets[0], file, name, "a data offset"), unsigned_number(offsets[1], file, name, "a data offset"), name};
  if (span.begin > span.end || span.end > data_bytes)
    fail("{}: tensor '{}' lies at bytes {} to {}, but the file holds {} bytes of data; it is truncated or damaged, download it again", file, name, span.begin, span.end, data_bytes);
  if (span.end - span.begin != *expected)
    fail("{}: tensor '{}' of shape {} and dtype {} needs {} bytes, but data_offsets give it {}", file, name, shape.dump(), known->name, *expected, span.end - span.begin);
  info.bytes = *expected;
  return info;
}

void refuse_overlaps_and_holes(const std::string& file, std::vector<Span>& spans, uint64_t data_bytes) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t end = 0;
  std::string_view previous = "the header";
  for (const Span& s : spans) {
    if (s.begin < end) fail("{}: tensors '{}' and '{}' overlap at byte {} of the data", file, previous, s.name, s.begin);
    if (s.begin > end) fail("{}: {} bytes between '{}' and '{}' belong to no tensor; the header does not match the data", file, s.begin - end, previous, s.name);
    end = s.end;
    previous = s.name;
  }
  if (end != data_bytes) fail("{}: {} bytes after the last tensor '{}' belong to no tensor; the file is damaged or was written over a longer one", file, data_bytes - end, previous);
}

class Safetensors final : public WeightFile {
 public:
  explicit Safetensors(std::string where) : where_(std::move(where)) {}

  void add_file(const std::string& path) {
    const MappedFile& file = files_.emplace_back(path);
    const auto bytes = file.bytes();
    if (bytes.size() < 8) fail("{}: {} bytes are too few for a safetensors header; the file is truncated", path, bytes.size());
    uint64_t header_bytes;
    std::memcpy(&header_bytes, bytes.data(), 8);
    if (header_bytes > kMaxHeader || header_bytes > bytes.size() - 8)
      fail("{}: the header claims {} bytes, but the file has {} (at most {} are allowed); it is truncated or not a safetensors file", path, header_bytes, bytes.size(), kMaxHeader);
    const HeaderJson header = parse_strict({reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes}, path, 4);
    if (!header.is_object()) fail("{}: the header is not a JSON object", path);
    const std::byte* data = bytes.data() + 8 + header_bytes;
    const uint64_t data_bytes = bytes.size() - 8 - header_bytes;
    std::vector<Span> spans;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        if (!entry.is_object()) fail("{}: __metadata__ is not a JSON object", path);
        for (const auto& [key, value] : entry.items()) {
          if (!value.is_string()) fail("{}: __metadata__ '{}' is not a string", path, key);
          metadata_[key] = value.get<std::string>();
        }
        continue;
      }
      Span span;
      TensorInfo info = read_entry(path, name, entry, data_bytes, span);
      const std::byte* at = data + span.begin;
      spans.push_back(std::move(span));
      table_.add(std::move(info), at);
    }
    refuse_overlaps_and_holes(path, spans, data_bytes);
  }

  void set_conv1d(bool conv1d) { conv1d_ = conv1d; }
  const TensorTable& table() const { return table_; }
  const Json& metadata() const { return metadata_; }

  const std::vector<TensorInfo>& tensors() const override { return table_.tensors(); }
  bool has(std::string_view name) const override { return find(name) || has_quantized(table_, name); }

  StoredWeight get(std::string_view name) const override {
    if (auto planes = assemble_quantized(table_, name)) return *std::move(planes);
    const TensorInfo* info = find(name);
    if (!info) table_.fail_missing(name, where_);
    StoredWeight w = table_.get(*info);
    w.name = name;
    if (conv1d_ && info->shape.size() == 2 && (name.ends_with(".c_attn.weight") || name.ends_with(".c_proj.weight") || name.ends_with(".c_fc.weight"))) {
      std::swap(w.rows, w.cols);
      w.transposed = true;
    }
    return w;
  }

  std::string container() const override { return files_.size() == 1 ? "safetensors" : fmt::format("safetensors, {} shards", files_.size()); }

 private:
  // The language model of a multimodal checkpoint, and GPT-2 as first published, have the same tensors under another prefix.
  const TensorInfo* find(std::string_view name) const {
    if (const TensorInfo* info = table_.find(name)) return info;
    const auto with = [&](std::string_view old_prefix, std::string_view new_prefix) -> const TensorInfo* {
      return name.starts_with(old_prefix) ? table_.find(std::string(new_prefix).append(name.substr(old_prefix.size()))) : nullptr;
    };
    if (const TensorInfo* info = with("model.", "model.language_model.")) return info;
    if (const TensorInfo* info = with("model.", "language_model.model.")) return info;
    if (const TensorInfo* info = with("lm_head.", "language_model.lm_head.")) return info;
    return with("transformer.", "");
  }

  std::string where_;
  std::vector<MappedFile> files_;
  TensorTable table_;
  Json metadata_ = Json::object();
  bool conv1d_ = false;
};

std::string shard_path(const std::string& folder, const std::string& index, const std::string& shard) {
  const fs::path path(shard);
  const bool leaves = path.is_absolute() || std::any_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
  if (shard.empty() || leaves || shard.find('\0') != std::string::npos) fail("{}: the shard '{}' is not a file of this folder", index, shard);
  return (fs::path(folder) / path).string();
}

std::unique_ptr<Safetensors> open_sharded(const std::string& folder, const std::string& index) {
  const HeaderJson json = parse_strict(read_file(index), index, 16);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) fail("{}: there is no object 'weight_map'", index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) fail("{}: weight_map '{}' is not the name of a file", index, tensor);
    shards.insert(shard.get<std::string>());
  }
  auto weights = std::make_unique<Safetensors>(folder);
  for (const std::string& shard : shards) {
    const std::string path = shard_path(folder, index, shard);
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) fail("{}: the shard '{}' named there is missing ({}); download the model again", index, shard, path);
    weights->add_file(path);
  }
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    const TensorInfo* info = weights->table().find(tensor);
    if (!info || info->file != shard_path(folder, index, shard.get<std::string>()))
      fail("{}: tensor '{}' should be in '{}', but that shard does not have it; the shards are of different versions or damaged", index, tensor, shard.get<std::string>());
  }
  return weights;
}

std::vector<std::string> safetensors_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file(ignored)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::unique_ptr<WeightFile> open_safetensors_file(const std::string& path) {
  auto weights = std::make_unique<Safetensors>(path);
  weights->add_file(path);
  return weights;
}

bool has_safetensors(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(folder + "/model.safetensors.index.json", ignored) || !safetensors_in(folder).empty();
}

std::unique_ptr<WeightFile> open_safetensors_folder(const std::string& folder, const Json& config) {
  const std::string index = folder + "/model.safetensors.index.json", single = folder + "/model.safetensors";
  std::unique_ptr<Safetensors> weights;
  std::error_code ignored;
  if (fs::exists(index, ignored)) {
    weights = open_sharded(folder, index);
  } else {
    auto files = safetensors_in(folder);
    if (std::find(files.begin(), files.end(), single) != files.end()) files = {single};
    if (files.empty()) return nullptr;
    weights = std::make_unique<Safetensors>(files.size() == 1 ? files[0] : folder);
    for (const std::string& file : files) weights->add_file(file);
  }
  weights->set_conv1d(config.is_object() && config.contains("model_type") && config["model_type"] == "gpt2");
  return weights;
}

std::optional<std::string_view> safetensors_dtype(FormatId format) {
  for (const Dtype& d : kDtypes)
    if (d.format == format) return d.name;
  return std::nullopt;
}

const Json& safetensors_metadata(const WeightFile& file) {
  static const Json empty = Json::object();
  const auto* safetensors = dynamic_cast<const Safetensors*>(&file);
  return safetensors ? safetensors->metadata() : empty;
}

}  // namespace ridge
