// A tokenizer for tests: the text of every token is given; id 2 is a special token that ends an answer.
#pragma once
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace ridge {

class WordTokenizer : public Tokenizer {
 public:
  explicit WordTokenizer(std::vector<std::string> words) : words_(std::move(words)) {}
  std::vector<int32_t> encode(std::string_view, bool, bool) const override { return {}; }
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string bytes;
    for (const int32_t id : ids)
      if (!(skip_special_tokens && is_special(id))) bytes += words_[id];
    return bytes;
  }
  std::string token_bytes(int32_t id) const override { return words_[id]; }
  std::string token_name(int32_t id) const override { return words_[id]; }
  std::optional<int32_t> find(std::string_view) const override { return {}; }
  bool is_special(int32_t id) const override { return id == 2; }
  int n_vocab() const override { return int(words_.size()); }
  std::string description() const override { return "words"; }

 private:
  std::vector<std::string> words_;
};

}  // namespace ridge
