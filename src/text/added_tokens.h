// Added tokens: strings that are cut out of the text before anything else sees it (special tokens among them). The leftmost match wins, then the longest.
// Some are looked for in the text as it came, others after normalization (in their own normalized form).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/byte_trie.h"

namespace ridge {

class Normalizer;

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;         // only where no word character touches it
  bool lstrip = false, rstrip = false;      // takes the white space on that side with it
  bool normalized = false;
  bool special = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  struct Part { std::string_view text; int32_t id; };         // id -1: text between tokens
  enum class When { before_normalizing, after_normalizing };
  // Appends the parts of `text` in order. `with_special` false: special tokens are not seen.
  void split(std::vector<Part>& out, std::string_view text, When when, bool with_special) const;

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  struct Matcher {
    ByteTrie trie;                            // values: places in tokens_
    bool starts[256] = {};                    // bytes that begin a token
  };
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  Matcher raw_, normalized_;
};

}  // namespace ridge
