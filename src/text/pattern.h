// What Split and Replace look for: a plain string, or a regular expression ({"String": ..} or {"Regex": ..} in tokenizer.json).
#pragma once
#include <optional>
#include <string>

#include "text/regex.h"
#include "text/tokenizer_json.h"

namespace ridge {

class Pattern {
 public:
  static Pattern string(std::string literal) { return Pattern(std::move(literal), std::nullopt); }
  static Pattern regex(std::string_view expression, std::string_view what) { return Pattern({}, std::make_optional<Regex>(expression, what)); }
  static Pattern from_json(const JsonSection& owner);           // its "pattern"; a bare string is a plain string

  const std::string* literal() const { return regex_ ? nullptr : &literal_; }

  // Finds matches in one text after the other, as RegexSearch does.
  class Search {
   public:
    explicit Search(const Pattern& pattern) : pattern_(pattern) { if (pattern.regex_) regex_.emplace(*pattern.regex_); }
    void find_all(std::vector<Span>& out, std::string_view text);
   private:
    const Pattern& pattern_;
    std::optional<RegexSearch> regex_;
  };

  std::string replace_all(std::string_view text, std::string_view content) const;

 private:
  Pattern(std::string literal, std::optional<Regex> regex) : literal_(std::move(literal)), regex_(std::move(regex)) {}
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace ridge
