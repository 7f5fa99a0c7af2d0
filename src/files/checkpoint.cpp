// Finding a model and gathering what belongs to it. The order in which a name is tried: a path, our own cache, the Hugging Face cache.
#include "files/checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "files/gguf_weights.h"
#include "files/hf_config.h"
#include "files/safetensors.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The folder or .gguf file that `model` means.
std::optional<std::string> find_model(const std::string& model, const CacheFolders& folders) {
  if (model.empty() || model.size() > 4096 || model.find('\0') != std::string::npos) return std::nullopt;
  if (is_folder(model)) {
    if (exists(model + "/config.json")) return model;
    if (auto gguf = only_gguf_in(model)) return gguf;
    if (has_safetensors(model)) return model;
  } else if (model.ends_with(".gguf") && exists(model)) {
    return model;
  }
  if (auto found = find_in_ridge_cache(folders, model)) return found;
  if (auto snapshot = find_in_hub(folders, model)) {
    if (exists(*snapshot + "/config.json")) return snapshot;
    if (auto gguf = only_gguf_in(*snapshot)) return gguf;
  }
  return std::nullopt;
}

[[noreturn]] void fail_not_found(const std::string& model, const CacheFolders& folders) {
  if (is_folder(model)) {
    size_t n_gguf = 0;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(model, ignored)) n_gguf += entry.path().extension() == ".gguf";
    if (n_gguf > 1) fail("the folder {} holds {} .gguf files; name the one you mean", model, n_gguf);
    fail("the folder {} holds no model: neither config.json nor *.safetensors nor a .gguf file", model);
  }
  if (model.ends_with(".gguf") || model.ends_with(".safetensors") || model.starts_with("/") || model.starts_with("."))
    fail("there is no model at {}{}", model, model.ends_with(".safetensors") && exists(model) ? "; give the folder that has it beside its config.json" : "");
  const auto snapshot = find_in_hub(folders, model);
  if (snapshot) fail("{} is in the Hugging Face cache ({}), but without config.json or a single .gguf file; run `ridge pull {}` to complete it, or name a file there", model, *snapshot, model);
  if (is_hub_name(model))
    fail("no model '{}': looked for a folder of that name and for {}; run `ridge pull {}` to download it", model, hub_repo_folder(folders, model), model);
  fail("no model '{}': looked for a folder or .gguf file of that name and in {}/models; run `ridge pull {}`, or give a path or an org/name of the Hugging Face Hub", model, folders.ridge, model);
}

void read_text_files(Checkpoint& c) {
  const std::string folder = c.path + "/";
  if (exists(folder + "generation_config.json")) c.generation_config = read_json_file(folder + "generation_config.json");
  if (exists(folder + "tokenizer.json")) c.tokenizer_json = read_file(folder + "tokenizer.json");
  if (exists(folder + "tokenizer_config.json")) c.tokenizer_config = read_json_file(folder + "tokenizer_config.json");
  for (const auto& [name, json] : {std::pair{"generation_config.json", &c.generation_config}, std::pair{"tokenizer_config.json", &c.tokenizer_config}})
    if (!json->is_object()) fail("{}{}: not a JSON object", folder, name);
  if (exists(folder + "chat_template.jinja")) c.chat_template = read_file(folder + "chat_template.jinja");
  else c.chat_template = template_of(c.tokenizer_config);
  if (c.chat_template.empty() && exists(folder + "chat_template.json")) c.chat_template = template_of(read_json_file(folder + "chat_template.json"));
}

// The id of a special token by its text, from wherever the folder writes it. tokenizer.json is searched for the entry alone: parsing its vocabulary is the tokenizer's work.
std::optional<int32_t> id_of(const Checkpoint& c, const std::string& text) {
  if (text.empty()) return std::nullopt;
  const Json added = c.tokenizer_config.value("added_tokens_decoder", Json::object());
  if (added.is_object())
    for (const auto& [id, token] : added.items())
      if (token_text(added, id) == text && id.size() < 10 && std::all_of(id.begin(), id.end(), [](char ch) { return ch >= '0' && ch <= '9'; })) return std::stoi(id);
  const size_t at = c.tokenizer_json.find("\"added_tokens\"");
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = c.tokenizer_json.find('[', at);
  if (begin == std::string::npos) return std::nullopt;
  // The list ends at the bracket that closes it, outside of strings.
  size_t end = begin, depth = 0;
  for (bool in_string = false; end < c.tokenizer_json.size(); ++end) {
    const char ch = c.tokenizer_json[end];
    if (in_string) {
      if (ch == '\\') ++end;
      else if (ch == '"') in_string = false;
    } else if (ch == '"') in_string = true;
    else if (ch == '[') ++depth;
    else if (ch == ']' && --depth == 0) break;
  }
  if (end >= c.tokenizer_json.size()) return std::nullopt;
  const Json list = parse_json(std::string_view(c.tokenizer_json).substr(begin, end + 1 - begin), c.path + "/tokenizer.json: added_tokens");
  for (const Json& token : list)
    if (token_text(token, "content") == text && token.contains("id") && token["id"].is_number_integer()) {
      const auto id = token["id"].get<int64_t>();
      if (id >= 0 && id <= INT32_MAX) return static_cast<int32_t>(id);
    }
  return std::nullopt;
}

void read_gguf_tokens(Checkpoint& c);

// A folder made from a GGUF file has its vocabulary as one without tensors.
void read_vocabulary(Checkpoint& c) {
  const std::string vocabulary = c.path + "/vocabulary.gguf";
  if (!c.tokenizer_json.empty() || !exists(vocabulary)) return;
  c.gguf = std::make_shared<const GgufFile>(vocabulary);
  read_gguf_tokens(c);
}

Checkpoint open_folder(const std::string& path, bool with_weights) {
  Checkpoint c{.path = path, .config = Json::object(), .generation_config = Json::object(), .metadata = Json::object(), .tokenizer_config = Json::object()};
  if (exists(path + "/config.json")) c.config = normalize_config(parse_json(without_python_floats(read_file(path + "/config.json")), path + "/config.json"), path + "/config.json");
  read_text_files(c);
  if (with_weights) {
    c.weights = open_safetensors_folder(path, c.config);
    if (!c.weights) fail("{}: there is a config.json, but no *.safetensors; other containers (pytorch_model.bin) are not read, use a safetensors version of the model", path);
    c.metadata = safetensors_metadata(*c.weights);
  }
  c.bos_token = token_text(c.tokenizer_config, "bos_token");
  c.eos_token = token_text(c.tokenizer_config, "eos_token");
  append_ids(c.eos_ids, c.generation_config, "eos_token_id");
  append_ids(c.eos_ids, c.config, "eos_token_id");
  if (const auto id = id_of(c, c.eos_token); id && std::find(c.eos_ids.begin(), c.eos_ids.end(), *id) == c.eos_ids.end()) c.eos_ids.push_back(*id);
  c.bos_id = id_of(c, c.bos_token);
  if (!c.bos_id) {
    std::vector<int32_t> ids;
    append_ids(ids, c.config, "bos_token_id");
    if (!ids.empty()) c.bos_id = ids[0];
  }
  read_vocabulary(c);
  return c;
}

// Texts of tokens that end a turn, for GGUF files that name only one of them.
constexpr std::array<std::string_view, 9> kEndOfTurn = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|end_of_role|>", "<EOT>"};

void read_gguf_tokens(Checkpoint& c) {
  const GgufMetadata& m = c.gguf->metadata();
  const auto tokens = m.strings("tokenizer.ggml.tokens").value_or(std::vector<std::string_view>{});
  const auto types = m.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>{});
  const auto text = [&](std::string_view key) -> std::string {
    const auto id = m.integer(key);
    return id && *id >= 0 && *id < static_cast<int64_t>(tokens.size()) ? std::string(tokens[static_cast<size_t>(*id)]) : "";
  };
  c.bos_token = text("tokenizer.ggml.bos_token_id");
  c.eos_token = text("tokenizer.ggml.eos_token_id");
  if (const auto id = m.integer("tokenizer.ggml.bos_token_id"); id && *id >= 0 && *id <= INT32_MAX) c.bos_id = static_cast<int32_t>(*id);
  const auto add = [&](int64_t id) {
    if (id >= 0 && id <= INT32_MAX && std::find(c.eos_ids.begin(), c.eos_ids.end(), id) == c.eos_ids.end()) c.eos_ids.push_back(static_cast<int32_t>(id));
  };
  append_ids(c.eos_ids, c.generation_config, "eos_token_id");
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = m.integer(key)) add(*id);
  constexpr int64_t kControl = 3, kUserDefined = 4;
  for (size_t i = 0; i < tokens.size() && i < types.size(); ++i)
    if ((types[i] == kControl || types[i] == kUserDefined) && std::find(kEndOfTurn.begin(), kEndOfTurn.end(), tokens[i]) != kEndOfTurn.end() &&
        c.chat_template.find(tokens[i]) != std::string::npos)
      add(static_cast<int64_t>(i));
}

Json sampling_defaults(const GgufMetadata& m) {
  Json config = Json::object();
  if (const auto original = m.string("ridge.generation_config")) config = parse_json(*original, "metadata 'ridge.generation_config'");
  if (!config.is_object()) config = Json::object();
  for (const auto& [key, name] : {std::pair{"general.sampling.top_p", "top_p"}, std::pair{"general.sampling.min_p", "min_p"}, std::pair{"general.sampling.temp", "temperature"},
                                  std::pair{"general.sampling.penalty_repeat", "repetition_penalty"}})
    if (const auto v = m.number(key)) config[name] = *v;
  if (const auto v = m.integer("general.sampling.top_k")) config["top_k"] = *v;
  return config;
}

Checkpoint open_gguf(const std::string& path, bool with_weights) {
  Checkpoint c{.path = path, .config = Json::object(), .generation_config = Json::object(), .metadata = Json::object(), .tokenizer_config = Json::object()};
  const auto files = open_gguf_splits(path);
  c.gguf = files[0];
  const GgufMetadata& m = c.gguf->metadata();
  c.metadata = m.to_json();
  c.generation_config = sampling_defaults(m);
  c.chat_template = m.string("tokenizer.chat_template").value_or("");
  c.tokenizer_json = m.string("tokenizer.huggingface.json").value_or("");
  read_gguf_tokens(c);
  const bool is_vocabulary = c.gguf->tensors().empty();
  if (is_vocabulary && with_weights) fail("{}: the file holds a vocabulary and no tensors", path);
  if (!is_vocabulary) {
    GgufModel model = open_gguf_model(files);
    c.config = std::move(model.config);
    if (with_weights) c.weights = std::move(model.weights);
  }
  return c;
}

std::string name_for_people(const std::string& model, const std::string& path, const CacheFolders& folders) {
  if (find_in_ridge_cache(folders, model) == path || is_hub_name(model)) return model;
  std::error_code ignored;
  const fs::path absolute = fs::absolute(path, ignored).lexically_normal();
  return absolute.has_filename() ? absolute.filename().string() : absolute.parent_path().filename().string();
}

}  // namespace

Checkpoint open_checkpoint(const std::string& model, const CacheFolders& folders, bool with_weights) {
  const auto path = find_model(model, folders);
  if (!path) fail_not_found(model, folders);
  Checkpoint c = is_folder(*path) ? open_folder(*path, with_weights) : open_gguf(*path, with_weights);
  c.name = name_for_people(model, *path, folders);
  return c;
}

Checkpoint open_checkpoint(const std::string& model, bool with_weights) { return open_checkpoint(model, CacheFolders::from_environment(), with_weights); }

bool names_a_model(const std::string& model, const CacheFolders& folders) { return find_model(model, folders).has_value(); }
bool names_a_model(const std::string& model) { return names_a_model(model, CacheFolders::from_environment()); }

}  // namespace ridge
