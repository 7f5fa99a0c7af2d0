#include "text/grammar_source.h"

#include <algorithm>

#include "base/error.h"
#include "text/regular.h"
#include "text/schema_grammar.h"

namespace ridge {

namespace {

constexpr size_t kMostBytes = size_t{512} << 10;
constexpr int kMostNesting = 100;
constexpr int64_t kMostRepetitions = 4096;            // of one thing
constexpr int kMostCounted = 6000;                    // of all things together; beyond 257 they are counted, not unrolled

// The text of a GBNF literal from after its quote; `at` is left after the closing one.
std::string read_literal(std::string_view grammar, size_t& at) {
  std::string out;
  const auto hex = [&](size_t most) {
    char32_t c = 0;
    for (size_t n = 0; n < most && at < grammar.size() && std::isxdigit(static_cast<unsigned char>(grammar[at])); ++n, ++at) {
      const char d = grammar[at];
      c = c * 16 + static_cast<char32_t>(d <= '9' ? d - '0' : (d | 32) - 'a' + 10);
    }
    append_utf8(out, std::min<char32_t>(c, 0x10ffff));
  };
  while (at < grammar.size() && grammar[at] != '"') {
    if (grammar[at] == '\n') fail("The grammar has a literal without its closing quote: {}", grammar.substr(at > 40 ? at - 40 : 0, 40));
    if (grammar[at] != '\\') {
      out += grammar[at++];
      continue;
    }
    if (++at >= grammar.size()) break;
    const char c = grammar[at++];
    switch (c) {
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case 'r': out += '\r'; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'v': out += '\v'; break;
      case 'a': out += '\a'; break;
      case 'e': out += '\x1b'; break;
      case '0': out += '\0'; break;
      case 'x': hex(2); break;
      case 'u': hex(4); break;
      case 'U': hex(8); break;
      default: out += c;
    }
  }
  if (at >= grammar.size()) fail("The grammar ends inside a literal");
  ++at;
  return out;
}

std::string write_literal(std::string_view text) {
  std::string out = "\"";
  for (char32_t c : to_code_points(text)) {
    if (c < 0x80 && std::isalnum(static_cast<int>(c))) out += static_cast<char>(c);
    else out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
  return out + '"';
}

// A literal with the special tokens in it as tokens.
std::string with_tokens(const std::string& text, const std::vector<SpecialToken>& specials) {
  std::vector<std::string> parts;
  std::string plain;
  for (size_t i = 0; i < text.size();) {
    const auto found = std::ranges::find_if(specials, [&](const SpecialToken& s) { return text.compare(i, s.text.size(), s.text) == 0; });
    if (found == specials.end()) {
      plain += text[i++];
      continue;
    }
    if (!plain.empty()) parts.push_back(write_literal(plain));
    plain.clear();
    parts.push_back(fmt::format("Token({})", found->id));
    i += found->text.size();
  }
  if (!plain.empty() || parts.empty()) parts.push_back(write_literal(plain));
  return parts.size() == 1 ? parts[0] : fmt::format("({})", fmt::join(parts, " "));
}

}  // namespace

std::vector<SpecialToken> special_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& but) {
  std::vector<SpecialToken> out;
  for (int32_t id = 0; id < tokenizer.n_vocab(); ++id) {
    if (tokenizer.is_special(id) && std::ranges::find(but, id) == but.end() && !tokenizer.token_name(id).empty()) out.push_back({id, tokenizer.token_name(id)});
  }
  std::ranges::stable_sort(out, [](const SpecialToken& a, const SpecialToken& b) { return a.text.size() > b.text.size(); });
  return out;
}

std::string schema_source(const Json& json) {
  const Schema schema(json, "The JSON schema");
  GbnfRules rules;
  SchemaGrammar grammar(schema, rules);
  const Gbnf root = grammar.document();
  return rules.write(root, schema.what());
}

std::string regex_source(std::string_view pattern) {
  const Gbnf root = parse_regular(pattern, RegularMatch::whole, "The regular expression");
  return GbnfRules().write(root, "The regular expression");
}

std::string choice_source(const std::vector<std::string>& choices) {
  if (choices.empty()) fail("A list of choices must not be empty");
  std::vector<Gbnf> parts;
  for (const std::string& choice : choices) {
    if (choice.empty()) fail("A choice must not be empty");
    parts.push_back(Gbnf::literal(choice));
  }
  return GbnfRules().write(Gbnf::either(std::move(parts)), "The list of choices");
}

std::string gbnf_source(std::string_view grammar, const std::vector<SpecialToken>& specials) {
  if (grammar.size() > kMostBytes) fail("The grammar is {} bytes long; at most {} are taken", grammar.size(), kMostBytes);
  if (grammar.find('\0') != grammar.npos) fail("The grammar contains a zero byte");
  std::string out;
  int depth = 0;
  double repetitions = 0;
  for (size_t i = 0; i < grammar.size();) {
    const char c = grammar[i];
    if (c == '"') {
      ++i;
      out += with_tokens(read_literal(grammar, i), specials);
      continue;
    }
    if (c == '#') {
      while (i < grammar.size() && grammar[i] != '\n') ++i;
      continue;
    }
    if (c == '[') {                          // a class of characters, or a rule's options: as it is
      const size_t start = i++;
      while (i < grammar.size() && grammar[i] != ']' && grammar[i] != '\n') i += grammar[i] == '\\' ? 2 : 1;
      if (i >= grammar.size() || grammar[i] != ']') fail("The grammar has a [ without ]: {}", grammar.substr(start, 40));
      ++i;
      out += grammar.substr(start, i - start);
      continue;
    }
    if (c == '(' && ++depth > kMostNesting) fail("The grammar has more than {} groups inside one another", kMostNesting);
    if (c == ')') --depth;
    if (c == '{') {
      size_t at = i + 1;
      int64_t n = 0, largest = 0;
      for (; at < grammar.size() && grammar[at] != '}'; ++at) {
        n = std::isdigit(static_cast<unsigned char>(grammar[at])) ? std::min<int64_t>(n * 10 + (grammar[at] - '0'), 1 << 30) : 0;
        largest = std::max(largest, n);
      }
      if (largest > kMostRepetitions) fail("The grammar repeats something {} times; at most {} are taken", largest, kMostRepetitions);
      repetitions += static_cast<double>(std::min<int64_t>(largest, 257));
      if (repetitions > kMostCounted) fail("The grammar is too large: its repetitions add up to more than {}", kMostCounted);
      if (i + 1 < grammar.size() && grammar[i + 1] == ',') {     // {,n}
        out += "{0";
        ++i;
        continue;
      }
    }
    out += c;
    ++i;
  }
  if (out.find("::=") == std::string::npos) fail("The grammar has no rule; it needs one named root: root ::= ...");
  return out;
}

}  // namespace ridge
