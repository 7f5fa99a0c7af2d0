// Grammars as trees of expressions, before they are written as GBNF text. What can match nothing (`never`) disappears while a tree is built, and rules that could only
// match endless text are found before the grammar is used, so that a contradictory schema is refused with words and not with an answer that cannot begin.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

// Code points as sorted ranges that do not touch; never surrogates.
class CharSet {
 public:
  using Range = std::pair<char32_t, char32_t>;                  // both ends belong to it
  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges) { for (Range r : ranges) add(r.first, r.second); }
  static CharSet any() { return {{0, 0x10ffff}}; }
  static CharSet of(std::string_view ascii) { CharSet set; for (char c : ascii) set.add(c, c); return set; }

  void add(char32_t first, char32_t last);
  void add(const CharSet& other) { for (Range r : other.ranges_) add(r.first, r.second); }
  CharSet negated() const;
  CharSet both(const CharSet& other) const;
  CharSet without(const CharSet& other) const { return both(other.negated()); }
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  int64_t size() const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

class Gbnf {
 public:
  enum class Kind : uint8_t { never, empty, literal, chars, rule, sequence, either, repeat };
  static constexpr int64_t kEndless = int64_t{1} << 40;         // an upper bound that is none

  Gbnf() : Gbnf(Kind::empty) {}
  static Gbnf never() { return Gbnf(Kind::never); }
  static Gbnf literal(std::string_view text);                   // UTF-8
  static Gbnf chars(CharSet set);
  static Gbnf rule(std::string name);
  static Gbnf sequence(std::vector<Gbnf> parts);
  static Gbnf either(std::vector<Gbnf> parts);
  static Gbnf repeat(Gbnf part, int64_t min, int64_t max = kEndless);
  static Gbnf optional(Gbnf part) { return repeat(std::move(part), 0, 1); }

  Kind kind() const { return kind_; }
  bool is_never() const { return kind_ == Kind::never; }
  const std::string& text() const { return text_; }             // of a literal or a rule's name
  const CharSet& set() const { return set_; }
  const std::vector<Gbnf>& parts() const { return parts_; }
  int64_t min() const { return min_; }
  int64_t max() const { return max_; }
  // How many characters it can match; a rule counts as anything.
  int64_t min_length() const { return min_length_; }
  int64_t max_length() const { return max_length_; }
  // A part of the same language whose lengths lie in [min, max]; never() where none was found. For expressions without rules.
  Gbnf with_length(int64_t min, int64_t max) const;
  template <class F> Gbnf map_chars(const F& f) const;          // every chars and literal node replaced: f(CharSet) -> Gbnf

 private:
  explicit Gbnf(Kind kind) : kind_(kind) {}
  Kind kind_;
  std::string text_;
  CharSet set_;
  std::vector<Gbnf> parts_;
  int64_t min_ = 0, max_ = 0, min_length_ = 0, max_length_ = 0;
};

std::string to_regex(const Gbnf& e);                             // of one without rules: the same language as a regular expression
std::u32string to_code_points(std::string_view utf8);            // ill-formed bytes become U+FFFD
void append_utf8(std::string& out, char32_t c);

template <class F>
Gbnf Gbnf::map_chars(const F& f) const {
  if (kind_ == Kind::chars) return f(set_);
  std::vector<Gbnf> parts;
  if (kind_ == Kind::literal) {
    for (char32_t c : to_code_points(text_)) parts.push_back(f(CharSet{{c, c}}));
    return sequence(std::move(parts));
  }
  for (const Gbnf& part : parts_) parts.push_back(part.map_chars(f));
  if (kind_ == Kind::sequence) return sequence(std::move(parts));
  if (kind_ == Kind::either) return either(std::move(parts));
  if (kind_ == Kind::repeat) return repeat(std::move(parts[0]), min_, max_);
  return *this;
}

// Rules by name, in the order in which they were asked for.
class GbnfRules {
 public:
  std::string reserve(std::string_view hint);                   // a name that is not taken yet
  void define(const std::string& name, Gbnf body, int64_t max_chars = -1);    // max_chars: a soft end of what the rule matches
  Gbnf add(std::string_view hint, Gbnf body, int64_t max_chars = -1);         // reserve and define; never() stays never()
  int size() const { return static_cast<int>(order_.size()); }
  // The text with `root` as the rule `root`. Throws Error naming `what` when nothing finite can match, or when it is too large to compile in reasonable time.
  std::string write(const Gbnf& root, std::string_view what) const;

 private:
  struct Rule { Gbnf body; int64_t max_chars; };
  std::vector<std::string> order_;
  std::map<std::string, Rule> rules_;
};

}  // namespace ridge
