#include "text/regular.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace ridge {

namespace {

constexpr int kMostPatternNesting = 64;
constexpr int64_t kMostPatternRepetitions = 100000;
constexpr size_t kMostPatternBytes = 16384;

CharSet digits() { return {{'0', '9'}}; }
CharSet word() { return {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}}; }
CharSet space() {
  return {{9, 13}, {32, 32}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
}
CharSet not_a_line_end() { return CharSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.negated(); }

// An anchor is kept as an empty node with a name until its place is known.
struct Item {
  Gbnf e;
  char anchor = 0;                          // '^' or '$'
  std::vector<std::vector<Item>> group;     // a group that has anchors inside: its alternatives
};
using Branch = std::vector<Item>;

class Parser {
 public:
  Parser(std::string_view pattern, std::string_view what) : text_(to_code_points(pattern)), pattern_(pattern), what_(what) {
    if (pattern.size() > kMostPatternBytes) fail("{}: the pattern is {} bytes long; at most {} are taken", what, pattern.size(), kMostPatternBytes);
  }

  std::vector<Branch> parse() {
    std::vector<Branch> out = branches(0);
    if (at_ < text_.size()) refuse("an unmatched )");
    return out;
  }

  [[noreturn]] void refuse(std::string_view why) const { fail("{}: pattern '{}' at character {}: {}", what_, pattern_, at_, why); }

 private:
  bool more() const { return at_ < text_.size(); }
  char32_t peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }
  bool take(char32_t c) { return more() && peek() == c ? (++at_, true) : false; }

  std::vector<Branch> branches(int depth) {
    if (depth > kMostPatternNesting) refuse("groups are nested too deeply");
    std::vector<Branch> out(1);
    while (more() && peek() != ')') {
      if (take('|')) {
        out.emplace_back();
      } else {
        out.back().push_back(quantified(item(depth)));
      }
    }
    return out;
  }

  Item item(int depth) {
    const char32_t c = text_[at_++];
    switch (c) {
      case '^':
      case '$': return {.e = {}, .anchor = static_cast<char>(c), .group = {}};
      case '.': return {Gbnf::chars(not_a_line_end())};
      case '[': return {Gbnf::chars(char_class())};
      case '(': return group(depth);
      case '\\': return {escape()};
      case '*':
      case '+':
      case '?': --at_; refuse("nothing to repeat");
      default: return {Gbnf::chars({{c, c}})};
    }
  }

  Item group(int depth) {
    if (take('?')) {
      if (take(':')) {
      } else if (peek() == '<' && peek(1) != '=' && peek(1) != '!') {
        while (more() && peek() != '>') ++at_;
        if (!take('>')) refuse("a group's name without >");
      } else if (peek() == 'P' && peek(1) == '<') {
        while (more() && peek() != '>') ++at_;
        if (!take('>')) refuse("a group's name without >");
      } else {
        refuse("looking ahead or behind and inline flags are not supported: write the pattern without (?");
      }
    }
    std::vector<Branch> inner = branches(depth + 1);
    if (!take(')')) refuse("a ( without )");
    Item out;
    bool anchored = false;
    std::vector<Gbnf> parts;
    for (const Branch& branch : inner) {
      std::vector<Gbnf> sequence;
      for (const Item& item : branch) {
        anchored |= item.anchor != 0 || !item.group.empty();
        sequence.push_back(item.e);
      }
      parts.push_back(Gbnf::sequence(std::move(sequence)));
    }
    if (anchored) {
      out.group = std::move(inner);
    } else {
      out.e = Gbnf::either(std::move(parts));
    }
    return out;
  }

  std::optional<int64_t> number() {
    if (!(peek() >= '0' && peek() <= '9')) return std::nullopt;
    int64_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + (text_[at_++] - '0');
      if (n > kMostPatternRepetitions) refuse(fmt::format("more than {} repetitions", kMostPatternRepetitions));
    }
    return n;
  }

  Item quantified(Item item) {
    int64_t min = 1, max = 1;
    if (take('*')) {
      min = 0, max = Gbnf::kEndless;
    } else if (take('+')) {
      max = Gbnf::kEndless;
    } else if (take('?')) {
      min = 0;
    } else if (peek() == '{') {
      const size_t start = at_++;
      const std::optional<int64_t> low = number();
      std::optional<int64_t> high = low;
      if (take(',')) high = peek() == '}' ? Gbnf::kEndless : number();
      if (!low || !high || !take('}')) {            // a brace that is none: the character itself
        at_ = start;
        return item;
      }
      min = *low, max = *high;
      if (min > max) refuse("a repetition whose least count is more than its most");
    } else {
      return item;
    }
    if (item.anchor != 0 || !item.group.empty()) refuse("^ or $ inside something repeated");
    if (peek() == '?') ++at_;                        // lazy: the same language
    if (peek() == '+') refuse("possessive repetition is not supported");
    if (peek() == '*' || (peek() == '{' && peek(1) >= '0' && peek(1) <= '9')) refuse("a repetition of a repetition: put the inner one into (?: )");
    return {Gbnf::repeat(std::move(item.e), min, max)};
  }

  uint32_t hex(int n_digits) {
    uint32_t value = 0;
    for (int i = 0; i < n_digits; ++i) {
      const char32_t c = peek();
      if (!(c < 0x80 && std::isxdigit(static_cast<int>(c)))) refuse("an escape with too few hexadecimal digits");
      value = value * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
      ++at_;
    }
    return value;
  }

  char32_t code_point() {                            // after \u
    uint32_t c;
    if (take('{')) {
      c = 0;
      while (more() && peek() != '}') c = c * 16 + hex(1), c = std::min(c, 0x110000u);
      if (!take('}') || c > 0x10ffff) refuse("an escape that is no code point");
      return c;
    }
    c = hex(4);
    if (c >= 0xd800 && c < 0xdc00 && peek() == '\\' && peek(1) == 'u') {
      at_ += 2;
      const uint32_t low = hex(4);
      if (low >= 0xdc00 && low < 0xe000) return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c >= 0xd800 && c < 0xe000) refuse("half of a surrogate pair");
    return c;
  }

  CharSet category() {                               // after \p or \P
    std::string name;
    if (take('{')) {
      while (more() && peek() != '}') append_utf8(name, text_[at_++]);
      if (!take('}')) refuse("\\p{ without }");
    } else {
      append_utf8(name, more() ? text_[at_++] : U' ');
    }
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      const std::string key = name.substr(0, equals);
      if (key != "gc" && key != "General_Category") refuse(fmt::format("\\p{{{}}}: only general categories are supported", name));
      name = name.substr(equals + 1);
    }
    static constexpr std::pair<std::string_view, std::string_view> kLong[] = {{"Letter", "L"}, {"Lowercase_Letter", "Ll"}, {"Uppercase_Letter", "Lu"}, {"Number", "N"},
        {"Decimal_Number", "Nd"}, {"Punctuation", "P"}, {"Symbol", "S"}, {"Separator", "Z"}, {"Mark", "M"}, {"Alphabetic", "L"}, {"Alpha", "L"}};
    for (const auto& [written, is] : kLong) if (name == written) name = is;
    if (name.empty() || name.size() > 2) refuse(fmt::format("\\p{{{}}}: only general categories such as L, Lu, Nd are supported", name));
    CharSet out;
    char32_t first = 0;
    bool inside = false;
    for (char32_t c = 0; c <= 0x110000; ++c) {
      const std::string_view of = c <= 0x10ffff ? utf8proc_category_string(static_cast<utf8proc_int32_t>(c)) : "";
      const bool is = of.starts_with(name);
      if (is && !inside) first = c;
      if (!is && inside) out.add(first, c - 1);
      inside = is;
    }
    if (out.empty()) refuse(fmt::format("\\p{{{}}}: no such category", name));
    return out;
  }

  // What an escape stands for inside or outside of a class; `single` where it is one character.
  CharSet escaped(std::optional<char32_t>& single) {
    if (!more()) refuse("a \\ at the end");
    const char32_t c = text_[at_++];
    switch (c) {
      case 'd': return digits();
      case 'D': return digits().negated();
      case 'w': return word();
      case 'W': return word().negated();
      case 's': return space();
      case 'S': return space().negated();
      case 'p': return category();
      case 'P': return category().negated();
      case 'n': single = '\n'; break;
      case 'r': single = '\r'; break;
      case 't': single = '\t'; break;
      case 'f': single = '\f'; break;
      case 'v': single = '\v'; break;
      case '0': single = 0; break;
      case 'x': single = hex(2); break;
      case 'u': single = code_point(); break;
      case 'c':
        if (!more()) refuse("\\c without a letter");
        single = text_[at_++] % 32;
        break;
      default:
        if (c < 0x80 && std::isalnum(static_cast<int>(c))) {
          --at_;
          refuse(fmt::format("\\{} is not supported", static_cast<char>(c)));
        }
        single = c;
    }
    return {{*single, *single}};
  }

  Gbnf escape() {
    std::optional<char32_t> single;
    return Gbnf::chars(escaped(single));
  }

  CharSet char_class() {
    const bool negated = take('^');
    CharSet set;
    while (true) {
      if (!more()) refuse("a [ without ]");
      if (peek() == ']') {                          // as ECMA-262: [] is empty, [^] is anything
        ++at_;
        break;
      }
      std::optional<char32_t> single;
      const auto one = [&]() -> CharSet {
        const char32_t c = text_[at_++];
        if (c == '[' && peek() == ':') refuse("[: :] classes are not supported");
        if (c == '\\') {
          if (peek() == 'b') {
            ++at_;
            single = '\b';
            return {{8, 8}};
          }
          return escaped(single);
        }
        single = c;
        return {{c, c}};
      };
      const CharSet item = one();
      if (single && peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
        const char32_t low = *single;
        ++at_;
        single.reset();
        one();
        if (!single || *single < low) refuse("a range in [ ] that runs backwards");
        set.add(low, *single);
      } else {
        set.add(item);
      }
    }
    return negated ? set.negated() : set;
  }

  std::u32string text_;
  size_t at_ = 0;
  std::string_view pattern_, what_;
};

// Anchors to their places: only at the two ends of an alternative, where they take away what `search` adds.
Gbnf placed(const Parser& parser, const std::vector<Branch>& branches, bool free_start, bool free_end) {
  std::vector<Gbnf> out;
  for (Branch branch : branches) {
    bool start = free_start, end = free_end;
    while (!branch.empty() && branch.front().anchor == '^') branch.erase(branch.begin()), start = false;
    while (!branch.empty() && branch.back().anchor == '$') branch.pop_back(), end = false;
    std::vector<Gbnf> parts;
    for (size_t i = 0; i < branch.size(); ++i) {
      if (branch[i].anchor != 0) parser.refuse("^ or $ in the middle");
      if (branch[i].group.empty()) {
        parts.push_back(branch[i].e);
        continue;
      }
      // A group with anchors of its own brings the free text with it.
      const bool first = i == 0, last = i + 1 == branch.size();
      if (!first && !last) parser.refuse("^ or $ in the middle");
      parts.push_back(placed(parser, branch[i].group, first && start, last && end));
      if (first) start = false;
      if (last) end = false;
    }
    const Gbnf any = Gbnf::repeat(Gbnf::chars(CharSet::any()), 0);
    if (start) parts.insert(parts.begin(), any);
    if (end && !(start && parts.size() == 1)) parts.push_back(any);
    out.push_back(Gbnf::sequence(std::move(parts)));
  }
  return Gbnf::either(std::move(out));
}

}  // namespace

Gbnf parse_regular(std::string_view pattern, RegularMatch match, std::string_view what) {
  Parser parser(pattern, what);
  const std::vector<Branch> branches = parser.parse();
  const bool free = match == RegularMatch::search;
  Gbnf out = placed(parser, branches, free, free);
  if (out.is_never()) fail("{}: pattern '{}' can match nothing", what, pattern);
  return out;
}

}  // namespace ridge
