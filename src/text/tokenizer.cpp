// Tokenizer::from_json: chooses the parts of a pipeline by what tokenizer.json says.
#include "text/tokenizer.h"

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/pipeline.h"
#include "text/tokenizer_json.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace ridge {
namespace {

std::vector<AddedToken> read_added_tokens(const JsonSection& root, const Vocabulary& vocabulary) {
  std::vector<AddedToken> out;
  if (!root.has("added_tokens")) return out;
  std::set<int32_t> ids;
  std::set<std::string> contents;
  for (const JsonSection& s : root.sections("added_tokens")) {
    AddedToken t;
    t.content = s.string("content");
    const int64_t id = s.integer("id");
    if (id < 0 || id >= Vocabulary::kMaxTokens) s.refuse(fmt::format("token \"{}\" has id {}, which is outside 0 to {}", t.content, id, Vocabulary::kMaxTokens - 1));
    t.id = static_cast<int32_t>(id);
    t.special = s.boolean_or("special", false);
    t.normalized = s.boolean_or("normalized", !t.special);
    t.single_word = s.boolean_or("single_word", false);
    t.lstrip = s.boolean_or("lstrip", false);
    t.rstrip = s.boolean_or("rstrip", false);
    if (vocabulary.has(id) && vocabulary.name(t.id) != t.content) s.refuse(fmt::format("id {} is given to two tokens, \"{}\" and \"{}\"", id, vocabulary.name(t.id), t.content));
    if (const auto known = vocabulary.find(t.content); known && *known != id) s.refuse(fmt::format("token \"{}\" is listed with two ids, {} and {}", t.content, *known, id));
    if (!ids.insert(t.id).second) s.refuse(fmt::format("id {} occurs twice", id));
    if (!contents.insert(t.content).second) s.refuse(fmt::format("token \"{}\" occurs twice", t.content));
    out.push_back(std::move(t));
  }
  return out;
}

std::string model_type(const JsonSection& model, const TokenizerJson& json) {
  if (model.has("type")) return model.type();
  if (!json.scored_vocab.empty()) return "Unigram";               // files from before "type" was written
  return json.has_merges ? "BPE" : "WordLevel";
}

std::shared_ptr<Vocabulary> read_vocabulary(TokenizerJson& json, const std::string& type, const JsonSection& model) {
  if (!json.has_vocab) model.refuse("has no \"vocab\"");
  auto vocabulary = std::make_shared<Vocabulary>();
  if (type == "Unigram") {
    if (!json.vocab.empty()) model.refuse("the vocab of a Unigram model must be a list of [token, score]");
    vocabulary->reserve(json.scored_vocab.size());
    for (size_t i = 0; i < json.scored_vocab.size(); ++i) vocabulary->insert_or_alias(std::move(json.scored_vocab[i].first), static_cast<int64_t>(i), model.where());
  } else {
    if (!json.scored_vocab.empty()) model.refuse("the vocab must be an object of token: id");
    vocabulary->reserve(json.vocab.size());
    for (auto& [token, id] : json.vocab) vocabulary->insert(std::move(token), id, model.where());
  }
  return vocabulary;
}

// Byte-level characters as the last stage before BPE need not be written out: the model takes the bytes themselves.
bool take_over_bytes(PreTokenizerList& stages, const BpeOptions& options) {
  if (stages.empty() || !is_byte_level_characters(*stages.back())) return false;
  if (options.byte_fallback || !options.continuing_subword_prefix.empty() || !options.end_of_word_suffix.empty()) return false;
  stages.pop_back();
  return true;
}

std::unique_ptr<TokenModel> make_bpe(TokenizerParts& parts, const TokenizerJson& json, const JsonSection& model, std::vector<bool> inert) {
  if (!json.has_merges) model.refuse("has no \"merges\"");
  if (model.has("dropout") && (!model.json()["dropout"].is_number() || model.json()["dropout"].get<double>() != 0.0))
    model.refuse("dropout would make the ids random; set it to null");
  BpeOptions options{.byte_fallback = model.boolean_or("byte_fallback", false), .ignore_merges = model.boolean_or("ignore_merges", false),
                     .fuse_unk = model.boolean_or("fuse_unk", false), .continuing_subword_prefix = model.string_or("continuing_subword_prefix", ""),
                     .end_of_word_suffix = model.string_or("end_of_word_suffix", "")};
  if (model.has("unk_token")) options.unk = model.string("unk_token");
  options.bytes = take_over_bytes(parts.pre_tokenizers, options);
  return std::make_unique<Bpe>(parts.vocabulary, json.merges, std::move(options), std::move(inert), model.where());
}

std::unique_ptr<TokenModel> make_unigram(TokenizerParts& parts, const TokenizerJson& json, const JsonSection& model, const std::vector<bool>& inert) {
  std::vector<double> scores;
  for (const auto& [token, score] : json.scored_vocab) {
    if (!std::isfinite(score)) model.refuse("a score that is not a finite number");
    scores.push_back(score);
  }
  const int64_t unk = model.integer_or("unk_id", -1);
  if (unk < -1 || unk >= static_cast<int64_t>(scores.size())) model.refuse(fmt::format("unk_id {} is not in the vocabulary of {} tokens", unk, scores.size()));
  return std::make_unique<Unigram>(parts.vocabulary, std::move(scores), static_cast<int32_t>(unk), model.boolean_or("byte_fallback", false), inert);
}

std::unique_ptr<TokenModel> make_wordpiece(TokenizerParts& parts, const JsonSection& model, bool whole_words) {
  WordPieceOptions options{.whole_words = whole_words};
  const std::string unk = model.string_or("unk_token", whole_words ? "<unk>" : "[UNK]");
  options.unk_id = parts.vocabulary->find(unk).value_or(-1);
  options.continuing_subword_prefix = model.string_or("continuing_subword_prefix", "##");
  const int64_t n = model.integer_or("max_input_chars_per_word", 100);
  if (n < 1 || n > 10000) model.refuse("max_input_chars_per_word must be 1 to 10000");
  options.max_input_chars_per_word = static_cast<size_t>(n);
  return std::make_unique<WordPiece>(parts.vocabulary, std::move(options));
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view what) {
  TokenizerJson json = parse_tokenizer_json(tokenizer_json, what);
  const JsonSection root(json.rest, std::string(what));
  const JsonSection model = root.section("model");
  const std::string type = model_type(model, json);
  if (type != "BPE" && type != "Unigram" && type != "WordPiece" && type != "WordLevel") model.refuse("the model \"" + type + "\" is not supported");

  TokenizerParts parts;
  parts.vocabulary = read_vocabulary(json, type, model);
  std::vector<AddedToken> added = read_added_tokens(root, *parts.vocabulary);
  std::vector<bool> inert(parts.vocabulary->size());
  for (const AddedToken& t : added)
    if (t.special && parts.vocabulary->has(t.id)) inert[t.id] = true;

  if (root.has("normalizer")) parts.normalizer = make_normalizer(root.section("normalizer"));
  if (root.has("pre_tokenizer")) append_pre_tokenizers(parts.pre_tokenizers, root.section("pre_tokenizer"));
  if (root.has("post_processor")) add_post_processor(parts.frame, root.section("post_processor"));
  if (root.has("decoder")) parts.decoder = make_decoder(root.section("decoder"));
  parts.added = AddedTokens(std::move(added), parts.normalizer.get());

  if (type == "BPE") parts.model = make_bpe(parts, json, model, std::move(inert));
  else if (type == "Unigram") parts.model = make_unigram(parts, json, model, inert);
  else parts.model = make_wordpiece(parts, model, type == "WordLevel");

  for (const auto* ids : {&parts.frame.before, &parts.frame.after})
    for (const int32_t id : *ids)
      if (!parts.vocabulary->has(id) && !parts.added.find(id)) root.section("post_processor").refuse(fmt::format("adds the token {}, which does not exist", id));
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace ridge
