#include "text/sequence_breakers.h"

#include <algorithm>

#include "base/error.h"

namespace ridge {
namespace {

constexpr size_t kMaxBytes = 40, kMaxStrings = 64;

void add(std::vector<std::vector<int32_t>>& tails, std::vector<int32_t> tail) {
  if (std::find(tails.begin(), tails.end(), tail) == tails.end()) tails.push_back(std::move(tail));
}

}  // namespace

SequenceBreakers find_sequence_breakers(const Tokenizer& tokenizer, const std::vector<std::string>& strings) {
  if (strings.size() > kMaxStrings) fail("dry_sequence_breakers has {} strings: at most {}", strings.size(), kMaxStrings);
  // The tokens of each string's end, by the number of bytes before it.
  std::vector<std::vector<std::vector<int32_t>>> tails;
  for (const std::string& s : strings) {
    if (s.empty()) fail("dry_sequence_breakers holds an empty string");
    if (s.size() > kMaxBytes) fail("dry_sequence_breakers holds a string of {} bytes: at most {}", s.size(), kMaxBytes);
    auto& of_string = tails.emplace_back(s.size());
    for (size_t n = 1; n < s.size(); ++n) of_string[n] = tokenizer.encode(s.substr(n), false, false);
  }
  SequenceBreakers breakers;
  for (int32_t token = 0; token < tokenizer.n_vocab(); ++token) {
    const std::string text = tokenizer.token_bytes(token);
    for (size_t i = 0; i < strings.size(); ++i) {
      const std::string& s = strings[i];
      if (text.find(s) != std::string::npos) {
        add(breakers.after[token], {});
        continue;
      }
      for (size_t n = 1; n < s.size() && n <= text.size(); ++n)
        if (text.ends_with(s.substr(0, n))) add(breakers.after[token], tails[i][n]);
    }
  }
  return breakers;
}

}  // namespace ridge
