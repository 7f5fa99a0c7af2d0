#include "text/pattern.h"

#include "base/error.h"

namespace ridge {

Pattern Pattern::from_json(const JsonSection& owner) {
  if (!owner.has("pattern")) owner.refuse("has no \"pattern\"");
  if (owner.json()["pattern"].is_string()) return string(owner.string("pattern"));
  const JsonSection p = owner.section("pattern");
  if (p.has("String")) return string(p.string("String"));
  if (p.has("Regex")) return regex(p.string("Regex"), p.where());
  p.refuse("must have \"String\" or \"Regex\"");
}

void Pattern::Search::find_all(std::vector<Span>& out, std::string_view text) {
  if (regex_) return regex_->find_all(out, text);
  out.clear();
  const std::string& literal = pattern_.literal_;
  if (literal.empty()) return;
  for (size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, at + literal.size())) out.push_back({at, at + literal.size()});
}

std::string Pattern::replace_all(std::string_view text, std::string_view content) const {
  std::vector<Span> matches;
  Search(*this).find_all(matches, text);
  constexpr size_t kMaxText = 512 << 20;
  if (text.size() > kMaxText || (!content.empty() && matches.size() > (kMaxText - text.size()) / content.size()))
    fail("a replacement of the tokenizer makes a text of more than {} bytes", kMaxText);
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (const Span& m : matches) {
    out.append(text.substr(at, m.begin - at)).append(content);
    at = m.end;
  }
  return out.append(text.substr(at));
}

}  // namespace ridge
