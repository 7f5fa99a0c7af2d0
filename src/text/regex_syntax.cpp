// Oniguruma's spelling of a pattern to PCRE2's. What differs and occurs in tokenizers:
//   \s \w \h        other sets of characters (PCRE2's \s has U+180E, its \w lacks marks, \h is a hexadecimal digit in Oniguruma)
//   [a[bc]] [x&&y]  nested sets and intersections: flattened, or looked ahead for
//   \p{Han}         a script in Oniguruma, script extensions in PCRE2; long names of categories
//   a{1,3}+         a repeated group, where PCRE2 reads a possessive quantifier; {,n} is {0,n}
//   (?m)            "dot matches newline"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "text/regex.h"

namespace ridge {
namespace {

constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr int kMaxSetDepth = 50;

constexpr std::array<std::pair<std::string_view, std::string_view>, 47> kCategories{{
    {"letter", "L"}, {"lowercaseletter", "Ll"}, {"uppercaseletter", "Lu"}, {"titlecaseletter", "Lt"}, {"modifierletter", "Lm"}, {"otherletter", "Lo"},
    {"mark", "M"}, {"combiningmark", "M"}, {"nonspacingmark", "Mn"}, {"spacingmark", "Mc"}, {"spacingcombiningmark", "Mc"}, {"enclosingmark", "Me"},
    {"number", "N"}, {"decimalnumber", "Nd"}, {"digit", "Nd"}, {"letternumber", "Nl"}, {"othernumber", "No"},
    {"punctuation", "P"}, {"punct", "P"}, {"connectorpunctuation", "Pc"}, {"dashpunctuation", "Pd"}, {"openpunctuation", "Ps"}, {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"}, {"finalpunctuation", "Pf"}, {"otherpunctuation", "Po"},
    {"symbol", "S"}, {"mathsymbol", "Sm"}, {"currencysymbol", "Sc"}, {"modifiersymbol", "Sk"}, {"othersymbol", "So"},
    {"separator", "Z"}, {"spaceseparator", "Zs"}, {"lineseparator", "Zl"}, {"paragraphseparator", "Zp"},
    {"other", "C"}, {"control", "Cc"}, {"cntrl", "Cc"}, {"format", "Cf"}, {"surrogate", "Cs"}, {"privateuse", "Co"}, {"unassigned", "Cn"},
    {"alpha", "Alphabetic"}, {"upper", "Uppercase"}, {"lower", "Lowercase"}, {"space", "White_Space"}, {"alnum", "Xan"},
}};

bool is_script(const std::string& name) {
  const std::string pattern = "\\p{sc:" + name + "}";
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &place, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view what) : p_(pattern), what_(what) {}

  std::string run() {
    while (i_ < p_.size()) next();
    return std::move(out_);
  }

 private:
  struct Set { bool negated = false; std::string items; std::string lookaheads; };      // [^items] with (?=..) or (?!..) before it

  std::string_view p_, what_;
  size_t i_ = 0;
  std::string out_;
  size_t atom_ = std::string::npos;         // where in out_ the thing that a quantifier would repeat begins
  std::vector<size_t> groups_;

  [[noreturn]] void refuse(std::string_view why) const { fail("{}: the pattern \"{}\": {}", what_, p_, why); }
  bool at(std::string_view s) const { return p_.substr(i_).starts_with(s); }
  char peek(size_t k = 0) const { return i_ + k < p_.size() ? p_[i_ + k] : '\0'; }

  void next() {
    const char c = peek();
    if (c == '\\') { atom_ = out_.size(); out_ += escape(false); return; }
    if (c == '[') { atom_ = out_.size(); out_ += spell(set(0)); return; }
    if (c == '(') { open_group(); return; }
    if (c == ')') {
      if (!groups_.empty()) { atom_ = groups_.back(); groups_.pop_back(); }
      out_ += c; ++i_;
      return;
    }
    if (c == '{') { interval(); return; }
    if (c != '*' && c != '+' && c != '?' && (static_cast<unsigned char>(c) & 0xC0) != 0x80) atom_ = out_.size();
    out_ += c; ++i_;
  }

  void open_group() {
    if (at("(*")) refuse("\"(*\" verbs are not supported");
    groups_.push_back(out_.size());
    out_ += '('; ++i_;
    if (peek() != '?') return;
    out_ += '?'; ++i_;
    while (i_ < p_.size() && (std::isalpha(static_cast<unsigned char>(peek())) || peek() == '-')) { out_ += peek() == 'm' ? 's' : peek(); ++i_; }
    while (i_ < p_.size() && std::string_view(":=!><").find(peek()) != std::string_view::npos) { out_ += peek(); ++i_; }
  }

  void interval() {
    size_t k = 1;
    while (std::isdigit(static_cast<unsigned char>(peek(k)))) ++k;
    const bool no_low = k == 1;
    bool comma = false;
    if (peek(k) == ',') { comma = true; ++k; }
    const size_t high = k;
    while (std::isdigit(static_cast<unsigned char>(peek(k)))) ++k;
    if (peek(k) != '}' || (no_low && (!comma || k == high))) { atom_ = out_.size(); out_ += "\\{"; ++i_; return; }
    std::string text(p_.substr(i_, k + 1));
    if (no_low) text.insert(1, "0");
    i_ += k + 1;
    if (peek() == '+' && atom_ != std::string::npos) {
      out_.insert(atom_, "(?:");
      out_ += text + ")";
      return;
    }
    out_ += text;
  }

  std::string escape(bool in_set) {
    ++i_;
    if (i_ >= p_.size()) refuse("ends with a backslash");
    const char c = p_[i_++];
    const auto as_set = [&](std::string_view items, bool negated) {
      if (in_set && negated) refuse("a negated escape inside a set is not supported");
      return in_set ? std::string(items) : fmt::format("[{}{}]", negated ? "^" : "", items);
    };
    switch (c) {
      case 's': return as_set(kSpace, false);
      case 'S': return in_set ? "\\S" : as_set(kSpace, true);
      case 'w': return as_set(kWord, false);
      case 'W': return in_set ? "\\W" : as_set(kWord, true);
      case 'h': return as_set("0-9a-fA-F", false);
      case 'H': return as_set("0-9a-fA-F", true);
      case 'p': case 'P': return property(c);
      case 'u': {
        const std::string_view hex = p_.substr(i_, 4);
        if (hex.size() < 4 || !std::all_of(hex.begin(), hex.end(), [](unsigned char h) { return std::isxdigit(h); })) refuse("\\u wants four hexadecimal digits");
        i_ += 4;
        return fmt::format("\\x{{{}}}", hex);
      }
      default: break;
    }
    if (static_cast<unsigned char>(c) >= 0x80) return std::string(1, c);          // its other bytes follow as they are
    return {'\\', c};
  }

  std::string property(char p) {
    if (peek() != '{') {
      if (!std::isalpha(static_cast<unsigned char>(peek()))) refuse("\\p wants a property");
      return {'\\', p, p_[i_++]};
    }
    const size_t end = p_.find('}', i_);
    if (end == std::string_view::npos) refuse("\\p{ without }");
    std::string name(p_.substr(i_ + 1, end - i_ - 1));
    i_ = end + 1;
    std::string hat;
    if (name.starts_with('^')) { hat = "^"; name.erase(0, 1); }
    if (name.size() > 2 && name.size() < 64) {
      std::string plain;
      for (const char c : name) if (std::isalnum(static_cast<unsigned char>(c))) plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const auto known = std::find_if(kCategories.begin(), kCategories.end(), [&](const auto& k) { return k.first == plain; });
      if (known != kCategories.end()) name = known->second;
      else if (is_script(name)) name = "sc:" + name;
    }
    return fmt::format("\\{}{{{}{}}}", p, hat, name);
  }

  static std::string brackets(bool negated, const std::string& items) { return fmt::format("[{}{}]", negated ? "^" : "", items); }

  static std::string spell(const Set& s) {
    if (s.lookaheads.empty()) return brackets(s.negated, s.items);
    const std::string plain = s.lookaheads + brackets(false, s.items);
    return s.negated ? fmt::format("(?:(?!{})(?s:.))", plain) : fmt::format("(?:{})", plain);
  }

  // At '['. Leaves i_ after the matching ']'.
  Set set(int depth) {
    if (depth > kMaxSetDepth) refuse("sets are nested too deeply");
    ++i_;
    const bool negated = peek() == '^';
    if (negated) ++i_;
    std::vector<Set> parts(1);
    for (bool first = true;; first = false) {
      if (i_ >= p_.size()) refuse("a set without its ]");
      Set& part = parts.back();
      const char c = peek();
      if (c == ']' && !first) { ++i_; break; }
      if (at("&&")) { i_ += 2; parts.emplace_back(); continue; }
      if (at("[:")) {
        const size_t end = p_.find(":]", i_);
        if (end != std::string_view::npos) { part.items += p_.substr(i_, end + 2 - i_); i_ = end + 2; continue; }
      }
      if (c == '[') {
        Set inner = set(depth + 1);
        if (!inner.negated && inner.lookaheads.empty() && !part.negated) part.items += inner.items;
        else if (part.items.empty() && (i_ >= p_.size() || peek() == ']' || at("&&"))) part = std::move(inner);
        else refuse("a negated set or an intersection united with other characters is not supported");
        continue;
      }
      if (c == '\\') { part.items += escape(true); continue; }
      part.items += c; ++i_;
    }
    // An intersection is the first part that is not negated, seen through all the others.
    if (parts.size() == 1) {
      Set& only = parts[0];
      if (!negated) return only;
      if (only.lookaheads.empty() || !only.negated) { only.negated = !only.negated; return only; }
      refuse("this negated set is not supported");
    }
    const auto base = std::find_if(parts.begin(), parts.end(), [](const Set& s) { return !s.negated; });
    if (base == parts.end()) refuse("an intersection of negated sets is not supported");
    Set result{.negated = negated, .items = base->items, .lookaheads = base->lookaheads};
    for (auto it = parts.begin(); it != parts.end(); ++it)
      if (it != base) result.lookaheads += fmt::format("(?={})", spell(*it));
    return result;
  }
};

}  // namespace

std::string oniguruma_to_pcre(std::string_view pattern, std::string_view what) {
  // Tried at every blank of a run, this one costs the square of the run; looking behind tries it once and finds the same.
  if (pattern == R"(\s+$)") return fmt::format("(?<![{0}])[{0}]+$", kSpace);
  return Translator(pattern, what).run();
}

}  // namespace ridge
