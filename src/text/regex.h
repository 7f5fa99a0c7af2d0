// A regular expression of a tokenizer, compiled by PCRE2 (JIT, UTF). Patterns are written for Oniguruma, which Hugging Face's tokenizers use:
// regex_syntax spells them for PCRE2. A Regex is immutable and shared between threads; a RegexSearch holds the state of one caller.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

std::string oniguruma_to_pcre(std::string_view pattern, std::string_view what);     // regex_syntax.cpp

class Regex {
 public:
  Regex(std::string_view pattern, std::string_view what);         // throws Error naming `what`, the pattern and the place of the mistake
  ~Regex();
  Regex(Regex&&) noexcept;

 private:
  friend class RegexSearch;
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

struct Span { size_t begin, end; };

class RegexSearch {
 public:
  explicit RegexSearch(const Regex& regex);
  ~RegexSearch();
  RegexSearch(const RegexSearch&) = delete;

  // All matches from left to right that do not overlap; empty ones too, unless they touch the match before. `text` is well-formed UTF-8.
  // Throws Error when the pattern needs unreasonable time or memory for this text.
  void find_all(std::vector<Span>& out, std::string_view text);

 private:
  struct State;
  const Regex* regex_;
  std::unique_ptr<State> state_;
};

}  // namespace ridge
