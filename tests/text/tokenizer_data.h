// Where the tokenizer tests find their data, and how a line of expectations reads.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace ridge::test {

inline std::string data_path(const std::string& name) { return std::string(RIDGE_SOURCE_DIR "/tests/data/tokenizers/") + name; }
inline std::string shared_path(const std::string& name) { return std::string(RIDGE_SOURCE_DIR "/../shared/tokenizers/") + name; }

inline std::unique_ptr<Tokenizer> load(const std::string& path) { return Tokenizer::from_json(read_file(path), path); }
inline std::unique_ptr<Tokenizer> shipped(const std::string& name) { return load(data_path(name + ".json")); }

// {"text", "ids", "decoded"} and, in the shipped data, "special_ids": ids with add_special_tokens.
inline std::vector<Json> read_jsonl(const std::string& path) {
  std::ifstream in(path);
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

// Made with Hugging Face's tokenizers 0.23; one for each kind of model.
inline const std::vector<std::string>& shipped_names() {
  static const std::vector<std::string> names{"byte_level", "roberta", "sentencepiece_bpe", "unigram", "unigram_bytes", "wordpiece", "suffix_bpe", "prefix_bpe"};
  return names;
}

}  // namespace ridge::test
