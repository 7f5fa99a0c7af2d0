// tokenizer.json as values: the vocabulary and the merges (hundreds of thousands of entries) go straight into arrays while the file is parsed, the rest is a
// small Json. `JsonSection` reads that rest with checked types, so that a mistake names its key.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace ridge {

struct TokenizerJson {
  Json rest;                                                  // everything but model.vocab and model.merges
  std::vector<std::pair<std::string, int64_t>> vocab;         // {"token": id}
  std::vector<std::pair<std::string, double>> scored_vocab;   // [["token", score]]: the place is the id
  std::vector<std::pair<std::string, std::string>> merges;    // "a b" or ["a", "b"]
  bool has_vocab = false, has_merges = false;
};

TokenizerJson parse_tokenizer_json(std::string_view text, std::string_view what);

class JsonSection {
 public:
  JsonSection(const Json& json, std::string where);           // throws Error unless it is an object
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }         // "tokenizer.json: decoder"

  bool has(std::string_view key) const;                       // there and not null
  JsonSection section(std::string_view key) const;
  std::vector<JsonSection> sections(std::string_view key) const;      // a list of objects
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  int64_t integer(std::string_view key) const;
  int64_t integer_or(std::string_view key, int64_t otherwise) const;
  std::string type() const { return string("type"); }
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  const Json& json_;
  std::string where_;

  const Json* find(std::string_view key) const;
  const Json& get(std::string_view key) const;
};

}  // namespace ridge
