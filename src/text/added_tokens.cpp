#include "text/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/characters.h"
#include "text/normalizers.h"

namespace ridge {
namespace {

// The last character of a text that is not empty.
std::string_view last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

bool touches_word(std::string_view before, std::string_view after) {
  return (!before.empty() && is_word(utf8::decode_one(last_character(before)).c)) || (!after.empty() && is_word(utf8::decode_one(after).c));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& t = tokens_[i];
    by_id_.emplace(t.id, i);
    std::string key = t.content;
    if (t.normalized && normalizer) key = normalizer->apply(std::move(key));
    if (key.empty()) continue;
    Matcher& m = t.normalized ? normalized_ : raw_;
    m.trie.insert(key, static_cast<int32_t>(i));
    m.starts[static_cast<unsigned char>(key[0])] = true;
  }
}

void AddedTokens::split(std::vector<Part>& out, std::string_view text, When when, bool with_special) const {
  const Matcher& m = when == When::before_normalizing ? raw_ : normalized_;
  if (m.trie.empty()) {
    if (!text.empty()) out.push_back({text, -1});
    return;
  }
  size_t done = 0;                            // text before this is in `out`
  for (size_t at = 0; at < text.size();) {
    if (!m.starts[static_cast<unsigned char>(text[at])]) { ++at; continue; }
    int32_t longest = -1;
    size_t end = at;
    int32_t node = ByteTrie::kRoot;
    for (size_t i = at; i < text.size();) {
      node = m.trie.step(node, text[i++]);
      if (node == ByteTrie::kNone) break;
      if (const int32_t v = m.trie.value(node); v >= 0 && (with_special || !tokens_[v].special)) { longest = v; end = i; }
    }
    if (longest < 0) { ++at; continue; }
    const AddedToken& t = tokens_[longest];
    size_t begin = at;
    at = end;
    if (t.single_word && touches_word(text.substr(0, begin), text.substr(end))) continue;
    while (t.lstrip && begin > done) {
      const std::string_view c = last_character(text.substr(done, begin - done));
      if (!is_whitespace(utf8::decode_one(c).c)) break;
      begin -= c.size();
    }
    while (t.rstrip && end < text.size()) {
      const utf8::Decoded d = utf8::decode_one(text.substr(end));
      if (!is_whitespace(d.c)) break;
      end += d.n_bytes;
    }
    if (begin > done) out.push_back({text.substr(done, begin - done), -1});
    out.push_back({text.substr(begin, end - begin), t.id});
    done = at = end;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = std::find_if(tokens_.begin(), tokens_.end(), [&](const AddedToken& t) { return t.content == content; });
  return it == tokens_.end() ? nullptr : &*it;
}

}  // namespace ridge
