#include "files/gguf_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "files/hf_config.h"

namespace ridge {
namespace {

using Sorted = nlohmann::json;              // a vocabulary has 100000 keys, among which an ordered object would search one by one

enum TokenType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
constexpr int64_t kMaxVocabulary = 4'000'000;

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int> types;

  void grow(int64_t n) {
    for (auto i = static_cast<int64_t>(tokens.size()); i < n; ++i) {
      tokens.push_back(fmt::format("[PAD{}]", i));
      types.push_back(kUnused);
    }
  }

  void set(const Sorted& id, const std::string& text, int type) {
    const auto at = id.get<int64_t>();
    if (at < 0 || at >= kMaxVocabulary) fail("the token '{}' has the id {}", text, at);
    grow(at + 1);
    tokens[static_cast<size_t>(at)] = text;
    types[static_cast<size_t>(at)] = type;
  }
};

// All patterns by which a tokenizer splits text, one after the other.
void collect_patterns(const Sorted& rule, std::string& patterns) {
  if (rule.is_object() && rule.contains("Regex") && rule["Regex"].is_string()) patterns += rule["Regex"].get<std::string>() + "\n";
  if (rule.is_structured())
    for (const Sorted& part : rule) collect_patterns(part, patterns);
}

// llama.cpp names the rule that splits text before BPE; each is told by a part of its pattern that those before it do not have.
struct PreTokenizerMark {
  std::string_view part, name;
};
constexpr PreTokenizerMark kMarks[] = {
    {R"(&&[^\p{Han}]])", "kimi-k2"},
    {R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:)", "gpt-4o"},
    {R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+)", "tekken"},
    {R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)", "deepseek-v3"},
    {R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)", "qwen35"},
    {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})", "llama-bpe"},
    {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)", "seed-coder"},
    {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)", "qwen2"},
    {R"(\s?\p{P}+)", "deepseek-coder"},
    {R"([0-9][0-9][0-9])", "falcon"},
    {R"( ?[^(\s|)", "bloom"},
};

std::string pre_tokenizer_name(const Sorted& tokenizer) {
  const Sorted rule = tokenizer.value("pre_tokenizer", Sorted());
  std::string patterns;
  collect_patterns(rule, patterns);
  for (const PreTokenizerMark& m : kMarks) {
    if (patterns.find(m.part) == std::string::npos) continue;
    // Llama 3 takes a word that is a token as it is; others have its pattern without that.
    return m.name == "llama-bpe" && !tokenizer["model"].value("ignore_merges", false) ? "dbrx" : std::string(m.name);
  }
  const std::string text = rule.dump();
  return text.find("\"Digits\"") != std::string::npos && text.find("\"individual_digits\":true") != std::string::npos ? "smollm" : "gpt-2";
}

// Whether a text begins with a space of the tokenizer's own (Llama 2), which llama.cpp has to be told.
bool has_space_prefix(const Sorted& tokenizer) {
  const std::string text = tokenizer.value("normalizer", Sorted()).dump() + tokenizer.value("pre_tokenizer", Sorted()).dump();
  if (text.find("\"Prepend\"") != std::string::npos) return true;
  if (text.find("\"Metaspace\"") == std::string::npos) return false;
  return text.find("\"prepend_scheme\":\"never\"") == std::string::npos && text.find("\"add_prefix_space\":false") == std::string::npos;
}

Vocabulary read_vocabulary(const Sorted& tokenizer, int64_t n_vocab, bool byte_fallback) {
  Vocabulary v;
  const Sorted& model = tokenizer["model"];
  for (const auto& [text, id] : model["vocab"].items()) {
    const bool is_byte = byte_fallback && text.size() == 6 && text.starts_with("<0x") && text.back() == '>';
    v.set(id, text, is_byte ? kByte : kNormal);
  }
  if (tokenizer.contains("added_tokens"))
    for (const Sorted& token : tokenizer["added_tokens"]) v.set(token.at("id"), token.at("content").get<std::string>(), token.value("special", false) ? kControl : kUserDefined);
  if (n_vocab < kMaxVocabulary) v.grow(n_vocab);
  return v;
}

// Merges are pairs, or pairs joined by a space in older files, as GGUF has them.
Json merges_of(const Sorted& model) {
  Json merges = Json::array();
  if (model.contains("merges"))
    for (const Sorted& m : model["merges"]) merges.push_back(m.is_array() ? m.at(0).get<std::string>() + " " + m.at(1).get<std::string>() : m.get<std::string>());
  return merges;
}

std::vector<GgufPair> bpe_pairs(const Checkpoint& c) {
  const Sorted tokenizer = Sorted::parse(c.tokenizer_json);
  const Sorted& model = tokenizer.at("model");
  if (!model.contains("vocab") || !model["vocab"].is_object() || !model.contains("merges")) return {};        // Unigram, WordPiece: llama.cpp gets no vocabulary
  const bool byte_fallback = model.value("byte_fallback", false);
  const int64_t n_vocab = c.config.contains("vocab_size") && c.config["vocab_size"].is_number_integer() ? c.config["vocab_size"].get<int64_t>() : 0;
  const Vocabulary v = read_vocabulary(tokenizer, n_vocab, byte_fallback);
  std::vector<GgufPair> pairs = {{"tokenizer.ggml.model", byte_fallback ? "llama" : "gpt2"},
                                 {"tokenizer.ggml.pre", byte_fallback ? "default" : pre_tokenizer_name(tokenizer)},
                                 {"tokenizer.ggml.tokens", v.tokens},
                                 {"tokenizer.ggml.token_type", v.types}};
  if (byte_fallback) {
    // A merge's rank is its piece's id in these vocabularies, so that a falling score merges in the same order.
    std::vector<float> scores;
    for (size_t i = 0; i < v.tokens.size(); ++i) scores.push_back(-static_cast<float>(i));
    pairs.push_back({"tokenizer.ggml.scores", scores});
    pairs.push_back({"tokenizer.ggml.add_space_prefix", has_space_prefix(tokenizer)});
  } else {
    pairs.push_back({"tokenizer.ggml.merges", merges_of(model)});
  }
  const auto id_of = [&](const char* key) -> std::optional<int64_t> {
    const std::string text = token_text(c.tokenizer_config, key);
    const auto it = text.empty() ? v.tokens.end() : std::find(v.tokens.begin(), v.tokens.end(), text);
    return it == v.tokens.end() ? std::nullopt : std::optional<int64_t>(it - v.tokens.begin());
  };
  if (const auto id = id_of("unk_token")) pairs.push_back({"tokenizer.ggml.unknown_token_id", *id});
  if (const auto id = id_of("pad_token")) pairs.push_back({"tokenizer.ggml.padding_token_id", *id});
  // The post-processor says what begins a text where tokenizer_config.json does not.
  if (!c.bos_token.empty() && !(c.tokenizer_config.contains("add_bos_token") && c.tokenizer_config["add_bos_token"].is_boolean())) {
    const std::string after = tokenizer.value("post_processor", Sorted()).dump();
    pairs.push_back({"tokenizer.ggml.add_bos_token", after.find(Sorted(c.bos_token).dump()) != std::string::npos});
  }
  return pairs;
}

std::string text_of(const std::vector<GgufPair>& pairs, int32_t id) {
  for (const GgufPair& p : pairs)
    if (p.key == "tokenizer.ggml.tokens" && id >= 0 && static_cast<size_t>(id) < p.value.size()) return p.value[static_cast<size_t>(id)].get<std::string>();
  return {};
}

std::vector<GgufPair> from_gguf(const GgufMetadata& m) {
  std::vector<GgufPair> pairs;
  const Json all = m.to_json(SIZE_MAX);
  for (const auto& [key, value] : all.items())
    if (key.starts_with("tokenizer.") || key == "general.name" || key.starts_with("general.sampling.") || key == "ridge.generation_config") pairs.push_back({key, value});
  return pairs;
}

}  // namespace

std::vector<GgufPair> tokenizer_metadata(const Checkpoint& c) {
  if (c.gguf) return from_gguf(c.gguf->metadata());
  std::vector<GgufPair> pairs;
  if (!c.tokenizer_json.empty()) {
    try {
      pairs = bpe_pairs(c);
    } catch (const Sorted::exception& e) {
      fail("{}/tokenizer.json: {}", c.path, e.what());
    } catch (const Error& e) {
      fail("{}/tokenizer.json: {}", c.path, e.what());
    }
    pairs.push_back({"tokenizer.huggingface.json", c.tokenizer_json});
  }
  if (c.bos_id) pairs.push_back({"tokenizer.ggml.bos_token_id", *c.bos_id});
  // GGUF's eos is the tokenizer's own, whose text templates write; of further ids that end an answer it has place for one.
  std::optional<int32_t> eos, other;
  for (const int32_t id : c.eos_ids)
    if (!eos && text_of(pairs, id) == c.eos_token) eos = id;
  if (!eos && !c.eos_ids.empty()) eos = c.eos_ids[0];
  for (const int32_t id : c.eos_ids)
    if (!other && id != eos) other = id;
  if (eos) pairs.push_back({"tokenizer.ggml.eos_token_id", *eos});
  if (other) pairs.push_back({"tokenizer.ggml.eot_token_id", *other});
  if (const auto it = c.tokenizer_config.find("add_bos_token"); it != c.tokenizer_config.end() && it->is_boolean()) pairs.push_back({"tokenizer.ggml.add_bos_token", it->get<bool>()});
  if (!c.chat_template.empty()) pairs.push_back({"tokenizer.chat_template", c.chat_template});
  if (!c.generation_config.empty()) pairs.push_back({"ridge.generation_config", c.generation_config.dump()});
  if (!c.name.empty()) pairs.push_back({"general.name", c.name});
  return pairs;
}

}  // namespace ridge
