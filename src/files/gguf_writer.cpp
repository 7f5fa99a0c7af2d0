#include "files/gguf_writer.h"

#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/files.h"
#include "files/gguf/tensors.h"

namespace ridge {
namespace {

constexpr uint64_t kAlignment = 32;

template <class T>
void put(std::string& out, T v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); }

void put_text(std::string& out, std::string_view s) {
  put(out, static_cast<uint64_t>(s.size()));
  out += s;
}

void put_type(std::string& out, GgufType t) { put(out, static_cast<uint32_t>(t)); }

GgufType type_of(const Json& v, const std::string& path, const std::string& key, bool in_list) {
  if (v.is_string()) return GgufType::string;
  if (v.is_boolean()) return GgufType::boolean;
  if (v.is_number_float()) return GgufType::f32;
  if (v.is_number_unsigned() && v.get<uint64_t>() > INT32_MAX) return v.get<uint64_t>() > UINT32_MAX ? GgufType::u64 : GgufType::u32;
  if (v.is_number_integer() && v.get<int64_t>() < INT32_MIN) return GgufType::i64;
  if (v.is_number_integer()) return in_list || v.get<int64_t>() < 0 ? GgufType::i32 : GgufType::u32;
  fail("{}: metadata '{}' has a value that GGUF has no type for: {}", path, key, v.type_name());
}

void put_value(std::string& out, const Json& v, GgufType type) {
  switch (type) {
    case GgufType::string: put_text(out, v.get_ref<const std::string&>()); break;
    case GgufType::boolean: put(out, static_cast<uint8_t>(v.get<bool>())); break;
    case GgufType::f32: put(out, v.get<float>()); break;
    case GgufType::u64: put(out, v.get<uint64_t>()); break;
    case GgufType::i64: put(out, v.get<int64_t>()); break;
    case GgufType::u32: put(out, v.get<uint32_t>()); break;
    default: put(out, v.get<int32_t>());
  }
}

void put_pair(std::string& out, const GgufPair& pair, const std::string& path) {
  put_text(out, pair.key);
  const Json& v = pair.value;
  if (!v.is_array()) {
    const GgufType type = type_of(v, path, pair.key, false);
    put_type(out, type);
    put_value(out, v, type);
    return;
  }
  const GgufType type = v.empty() ? GgufType::i32 : type_of(v[0], path, pair.key, true);
  put_type(out, GgufType::array);
  put_type(out, type);
  put(out, static_cast<uint64_t>(v.size()));
  for (const Json& item : v) {
    if (type_of(item, path, pair.key, true) != type) fail("{}: metadata '{}' is a list of several types", path, pair.key);
    put_value(out, item, type);
  }
}

// llama.cpp's number for "mostly this format".
int64_t file_type_of(const std::vector<TensorSource>& tensors) {
  static const std::map<FormatId, int64_t> numbers = {{FormatId::f32, 0},   {FormatId::f16, 1},   {FormatId::q4_0, 2},  {FormatId::q4_1, 3},  {FormatId::q8_0, 7},  {FormatId::q5_0, 8},   {FormatId::q5_1, 9},
                                                      {FormatId::q2_k, 10}, {FormatId::q3_k, 11}, {FormatId::q4_k, 14}, {FormatId::q5_k, 16}, {FormatId::q6_k, 18}, {FormatId::bf16, 32}, {FormatId::nvfp4, 39}};
  std::map<FormatId, int64_t> n_numbers;
  for (const TensorSource& t : tensors)
    if (t.shape.size() >= 2) n_numbers[t.format] += t.rows() * t.cols();
  int64_t most = -1, result = 0;
  for (const auto& [id, n] : n_numbers)
    if (const auto it = numbers.find(id); it != numbers.end() && n > most) most = n, result = it->second;
  return result;
}

// What the weights of the file are already multiplied by is 1 in the configuration that goes along.
Json with_folded_factors(Json config, const GgufArchitecture& a) {
  for (const std::string_view key : a.folded) {
    const auto it = config.find(key);
    if (it == config.end()) continue;
    if (it->is_array()) for (Json& x : *it) x = 1.0;
    else if (it->is_number()) *it = 1.0;
  }
  return config;
}

}  // namespace

void write_gguf(const std::string& path, const std::vector<GgufPair>& metadata, const std::vector<TensorSource>& tensors, const WriteProgress& progress) {
  std::string header = "GGUF";
  put(header, uint32_t{3});
  put(header, static_cast<uint64_t>(tensors.size()));
  put(header, static_cast<uint64_t>(metadata.size()));
  for (const GgufPair& pair : metadata) put_pair(header, pair, path);
  uint64_t offset = 0, total = 0;
  for (const TensorSource& t : tensors) {
    const auto type = gguf_type_of(t.format);
    if (!type) fail("{}: tensor '{}' is in {}, which GGUF has no type for", path, t.name, format(t.format).name);
    if (t.shape.empty() || t.shape.size() > 4) fail("{}: tensor '{}' has {} dimensions; GGUF has one to four", path, t.name, t.shape.size());
    put_text(header, t.name);
    put(header, static_cast<uint32_t>(t.shape.size()));
    for (size_t d = t.shape.size(); d-- > 0;) put(header, static_cast<uint64_t>(t.shape[d]));
    put(header, *type);
    put(header, offset);
    offset += (t.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    total += t.bytes();
  }
  OutputFile file(path);
  file.write(header);
  file.pad_to(kAlignment);
  uint64_t done = 0;
  std::vector<std::byte> row;
  for (const TensorSource& t : tensors) {
    row.resize(static_cast<size_t>(row_bytes(t.format, t.cols())));
    for (int64_t r = 0; r < t.rows(); ++r) {
      t.encode_row(row.data(), r);
      file.write(row.data(), row.size());
      done += row.size();
      if (progress) progress(done, total);
    }
    file.pad_to(kAlignment);
  }
  file.commit();
}

void write_gguf_model(const std::string& path, const Json& config, const std::vector<GgufPair>& metadata, const std::vector<TensorSource>& tensors, const WriteProgress& progress,
                      std::vector<std::string>* left_out) {
  const GgufArchitecture* a = gguf_architecture_of(config);
  if (!a) fail("{}: there is no GGUF architecture for model_type {} in Ridgeline's table; the model stays in safetensors", path, config.contains("model_type") ? config["model_type"].dump() : "(none)");
  std::vector<GgufPair> pairs;
  GgufRopeFactors rope;
  try {
    pairs = gguf_from_config(config, *a);
    rope = rope_factors_from_config(config);
  } catch (const Json::exception& e) {
    fail("{}: the configuration lacks what a {} needs, or has it in another type: {}", path, a->model_type, e.what());
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
  pairs.push_back({"general.type", "model"});
  pairs.push_back({"general.quantization_version", 2});
  pairs.push_back({"general.file_type", file_type_of(tensors)});
  pairs.push_back({"ridge.config", with_folded_factors(config, *a).dump()});
  bool has_tokenizer = false;
  for (const GgufPair& pair : metadata) {
    has_tokenizer |= pair.key == "tokenizer.ggml.model";
    std::erase_if(pairs, [&](const GgufPair& p) { return p.key == pair.key; });
    pairs.push_back(pair);
  }
  if (!has_tokenizer) pairs.push_back({"tokenizer.ggml.model", "none"});

  std::vector<TensorSource> out;
  try {
    out = gguf_tensors(*a, config, tensors, left_out);
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
  for (const auto& [name, values] : {std::pair{"rope_freqs.weight", &rope.freqs}, std::pair{"rope_factors_long.weight", &rope.long_factor}, std::pair{"rope_factors_short.weight", &rope.short_factor}})
    if (!values->empty()) out.push_back(f32_source(name, {static_cast<int64_t>(values->size())}, *values));
  write_gguf(path, pairs, out, progress);
}

}  // namespace ridge
